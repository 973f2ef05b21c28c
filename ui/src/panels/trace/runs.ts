/** The runs of a thread, and which of them is shown. */

import { useEffect, useRef, useState } from "react";

import * as api from "../../api";
import { openConversation, useApp } from "../../state/app";
import { useLoad } from "../useLoad";

/** Return the last run with spans; the last run of all if none has spans. */
export function latestRun(runs: readonly api.ThreadRun[]): api.ThreadRun | undefined {
  return runs.findLast((run) => run.traced) ?? runs.at(-1);
}

export interface Runs {
  runs: api.ThreadRun[];
  run: api.ThreadRun | undefined; // the one that is shown: that which was asked for, or the latest
  error: string;
  busy: boolean;
  reload: () => void;
}

export function useRun(thread: string): Runs {
  const wanted = useApp((state) => state.run);
  const running = useApp((state) => openConversation(state).run); // read again when a run starts or ends
  const found = useLoad(async () => (thread ? (await api.threads.runs(thread)).runs : []), [thread], running);
  const runs = found.data ?? NONE;
  return {
    runs,
    run: runs.find((run) => run.run_id === wanted) ?? latestRun(runs),
    error: found.error,
    busy: found.busy,
    reload: found.reload,
  };
}

const NONE: api.ThreadRun[] = [];
const PROGRESS_MS = 500; // at least, between two reads of the trace of a run in progress

/** A number that grows while a run of the open thread makes progress, and once more when it ends. */
export function useProgress(run: string): number {
  const items = useApp((state) => (openConversation(state).run === run ? openConversation(state).items : NOTHING));
  const [count, setCount] = useState(0);
  const seen = useRef<readonly unknown[]>(items);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (seen.current === items) return;
    seen.current = items;
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      setCount((old) => old + 1);
    }, PROGRESS_MS);
  }, [items]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return count;
}

const NOTHING: readonly unknown[] = [];

export function runTitle(run: api.ThreadRun): string {
  const at = new Date(run.started * 1000).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  return `${at} · ${run.outcome || "running"}${run.traced ? "" : " (no trace)"}`;
}
