/** Changes from the server, for components. */

import { useEffect, useRef, useState } from "react";

import { type Change, onChange } from "./changes";

/** Call a listener when an agent changes, also in another client. `about` is the agent; all agents if it is empty. */
export function useAgentChanges(about: string, listener: (change: Change) => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(
    () =>
      onChange((change) => {
        if (WORK.has(change.event)) return;
        if (!about || !change.data["agent_id"] || change.data["agent_id"] === about) latest.current(change);
      }),
    [about],
  );
}

const WORK = new Set(["thread", "thread_deleted", "approvals", "files", "connected", "lost"]);

const PAUSE_MS = 1_000;

/** A counter that grows soon after changes of these kinds, and after lost ones; at most once a second. */
export function useChangeCount(...kinds: string[]): number {
  const [count, set] = useState(0);
  const wanted = kinds.join(" ");
  useEffect(() => {
    const all = new Set(["resync", ...wanted.split(" ")]);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const grow = () => {
      timer = undefined;
      set((old) => old + 1);
    };
    const stop = onChange(({ event }) => {
      if (all.has(event)) timer ??= setTimeout(grow, PAUSE_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [wanted]);
  return count;
}
