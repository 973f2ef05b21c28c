/** The folders of an agent's workspace as they are now: asked for when they are opened, and again while they are seen. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, conversation, patch } from "../state/app";
import { type Folder, parent, ROOT, same } from "./filesTree";

const LOOK_MS = 3_000;
const LIST_AFTER_MS = 250; // a tool that has ended may have written

export interface Live {
  folders: Record<string, Folder>;
  open: ReadonlySet<string>;
  problem: string;
  toggle: (path: string, open?: boolean) => void;
  look: (path?: string) => Promise<void>;
}

const OPENED = new Map<string, ReadonlySet<string>>(); // by agent: the panel may be closed and opened again

export function useFolders(agent: string, thread: string): Live {
  const [folders, setFolders] = useState<Record<string, Folder>>({});
  const [open, setOpen] = useState<ReadonlySet<string>>(OPENED.get(agent) ?? new Set());
  const [problem, setProblem] = useState("");
  const seen = useRef(open);
  seen.current = open;

  const list = useCallback(async (path: string) => {
    try {
      const { entries, truncated } = await api.files.list(agent, path, thread);
      setFolders((old) => (same(old[path], { entries, truncated }) ? old : { ...old, [path]: { entries, truncated } }));
      if (path === ROOT) setProblem("");
    } catch (error) {
      refused(error, path, setProblem, () => setOpen((old) => without(old, path)));
    }
  }, [agent, thread]);

  const look = useCallback(async (path?: string) => {
    for (const one of path ? [path] : [ROOT, ...[...seen.current].filter((folder) => isSeen(folder, seen.current))]) await list(one);
  }, [list]);

  const toggle = useCallback((path: string, wanted?: boolean) => {
    setOpen((old) => {
      const next = wanted ?? !old.has(path) ? new Set([...old, path]) : without(old, path);
      OPENED.set(agent, next);
      return next;
    });
    void list(path);
  }, [agent, list]);

  useEffect(() => {
    setFolders({});
    setOpen(OPENED.get(agent) ?? new Set());
    void look();
    return whileSeen(look);
  }, [agent, look]);
  return useMemo(() => ({ folders, open, problem, toggle, look }), [folders, open, problem, toggle, look]);
}

function without(set: ReadonlySet<string>, path: string): ReadonlySet<string> {
  return new Set([...set].filter((one) => one !== path));
}

/** A folder is seen if those around it are open. */
function isSeen(path: string, open: ReadonlySet<string>): boolean {
  for (let above = parent(path); above !== ROOT; above = parent(above)) if (!open.has(above)) return false;
  return true;
}

function refused(error: unknown, path: string, setProblem: (text: string) => void, gone: () => void): void {
  if (error instanceof ApiError && error.status === 401) patch({ me: null });
  else if (path !== ROOT) gone(); // the folder is no longer there
  else setProblem(error instanceof Error ? error.message : String(error));
}

/** Look again from time to time, and soon after the agent did something; not while nobody sees it. */
function whileSeen(look: () => Promise<void>): () => void {
  let [busy, soon]: [boolean, ReturnType<typeof setTimeout> | undefined] = [false, undefined];
  const again = async () => {
    if (busy || document.visibilityState !== "visible") return;
    busy = true;
    await look().finally(() => { busy = false; });
  };
  const timer = setInterval(() => void again(), LOOK_MS);
  let last = conversation(app.get());
  const stop = app.subscribe(() => {
    const now = conversation(app.get());
    if (now.last !== last.last) {
      clearTimeout(soon);
      soon = setTimeout(() => void again(), LIST_AFTER_MS);
    }
    last = now;
  });
  return () => {
    clearInterval(timer);
    clearTimeout(soon);
    stop();
  };
}
