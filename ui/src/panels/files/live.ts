/** The folders of an agent's workspace as they are now: asked for when they are opened, and again while they are seen. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import * as api from "../../api";
import { ApiError } from "../../api/http";
import { app, openConversation, patchApp } from "../../state/app";
import { onFileChange } from "../../state/changes";
import { type Folder, nameOf, parentPath, ROOT, isSameFolder } from "./rows";

const LOOK_MS = 30_000; // for files that a background command writes, which the server does not report
const LIST_AFTER_MS = 250; // a tool that has ended may have written

export interface Live {
  folders: Record<string, Folder>;
  open: ReadonlySet<string>;
  problem: string;
  toggle: (path: string, open?: boolean) => void;
  look: (path?: string) => Promise<void>;
}

const OPENED = new Map<string, ReadonlySet<string>>(); // by agent: the panel may be closed and opened again

/** The folders of one agent; for another one, the component is another. */
export function useFolders(agent: string, thread: string): Live {
  const [folders, setFolders] = useState<Record<string, Folder>>({});
  const [open, setOpen] = useState<ReadonlySet<string>>(OPENED.get(agent) ?? new Set());
  const [problem, setProblem] = useState("");
  const seen = useRef(open);
  seen.current = open;
  const known = useRef<Record<string, Folder>>({});
  const asked = useRef(thread);
  asked.current = thread;

  const list = useCallback(
    async (path: string) => {
      if (!agent) return; // the agents are not loaded yet
      try {
        const { entries, truncated } = await api.files.list(agent, path, thread);
        if (asked.current !== thread) return; // another thread is looked at by now
        known.current = { ...known.current, [path]: { entries, truncated } };
        setFolders((old) =>
          isSameFolder(old[path], { entries, truncated }) ? old : { ...old, [path]: { entries, truncated } },
        );
        if (path === ROOT) setProblem("");
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) patchApp({ me: null });
        else if (path !== ROOT && isGone(error)) setOpen((old) => withoutPath(old, path));
        else if (path === ROOT) setProblem(error instanceof Error ? error.message : String(error));
      }
    },
    [agent, thread],
  );

  const look = useCallback(
    async (path?: string) => {
      await list(path ?? ROOT);
      if (path) return;
      for (const one of [...seen.current].sort((a, b) => a.length - b.length))
        if (isSeen(one, seen.current, known.current)) await list(one);
    },
    [list],
  );

  const toggle = useCallback(
    (path: string, wanted?: boolean) => {
      setOpen((old) => {
        const next = (wanted ?? !old.has(path)) ? new Set([...old, path]) : withoutPath(old, path);
        OPENED.set(agent, next);
        return next;
      });
      void list(path);
    },
    [agent, list],
  );

  useEffect(() => {
    void look();
    return whileSeen(agent, look);
  }, [agent, look]);
  return useMemo(() => ({ folders, open, problem, toggle, look }), [folders, open, problem, toggle, look]);
}

/** The folder was deleted; other errors are temporary. */
const isGone = (error: unknown): boolean => error instanceof ApiError && [400, 404].includes(error.status);

function withoutPath(set: ReadonlySet<string>, path: string): ReadonlySet<string> {
  return new Set([...set].filter((one) => one !== path));
}

/** A folder is seen if it is there, and those around it are open. */
function isSeen(path: string, open: ReadonlySet<string>, known: Record<string, Folder>): boolean {
  const isThere = known[parentPath(path)]?.entries.some((one) => one.type === "dir" && one.name === nameOf(path));
  if (!isThere) return false;
  return parentPath(path) === ROOT || (open.has(parentPath(path)) && isSeen(parentPath(path), open, known));
}

/** Look again when files change, and soon after an action of the agent; not while hidden. */
function whileSeen(agent: string, look: () => Promise<void>): () => void {
  let soon: ReturnType<typeof setTimeout> | undefined;
  let [busy, changed] = [false, false]; // changed while it looks: it looks once more
  const again = async () => {
    changed = true;
    if (busy || document.visibilityState !== "visible") return;
    busy = true;
    while (changed) {
      changed = false;
      await look();
    }
    busy = false;
  };
  const timer = setInterval(() => void again(), LOOK_MS);
  const changes = () => void again();
  const unsubscribe = onFileChange(agent, changes);
  addEventListener("visibilitychange", changes);
  let last = openConversation(app.get());
  const stop = app.subscribe(() => {
    const now = openConversation(app.get());
    if (now.last !== last.last) {
      clearTimeout(soon);
      soon = setTimeout(() => void again(), LIST_AFTER_MS);
    }
    last = now;
  });
  return () => {
    clearInterval(timer);
    clearTimeout(soon);
    unsubscribe();
    removeEventListener("visibilitychange", changes);
    stop();
  };
}
