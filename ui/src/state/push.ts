/** Applying changes from the server to the lists and to the open thread. */

import type * as api from "../api";
import { app, patchApp } from "./app";
import { type Change, onChange } from "./changes";
import { refreshAgents, refreshApprovals } from "./lists";
import { catchUp, pollOnce } from "./session";
import { handleMissing } from "./threads";

const AGENT_EVENTS = new Set(["agent_created", "agent_changed", "agent_deleted", "config_reloaded", "models_changed"]);
const SOON_MS = 40;

/** Apply changes until the returned function is called. */
export const applyChanges = (): (() => void) => onChange(apply);

function apply({ event, data }: Change): void {
  if (event === "thread") placeThread(data as unknown as api.Thread);
  else if (event === "thread_deleted") dropThread(String(data["thread_id"]));
  else if (event === "approvals") soon(refreshApprovals);
  else if (AGENT_EVENTS.has(event)) soon(refreshAgents);
  else if (event === "resync") resync();
  else if (event === "lost") void pollOnce(); // shows whether the server can be reached
}

function resync(): void {
  void pollOnce();
  soon(refreshApprovals);
  soon(refreshAgents);
}

/** Put a changed thread to its place in the list; an older one than those that are loaded stays away. */
function placeThread(row: api.Thread): void {
  app.set((old) => ({ ...old, threads: insertThread(old.threads, old.more, row) }));
  if (row.id === app.get().thread) soon(catchUp);
}

export function insertThread(threads: api.Thread[], more: string, row: api.Thread): api.Thread[] {
  const others = threads.filter((one) => one.id !== row.id);
  const at = others.findIndex((one) => one.updated <= row.updated);
  if (at < 0 && more && others.length === threads.length) return threads;
  return at < 0 ? [...others, row] : [...others.slice(0, at), row, ...others.slice(at)];
}

function dropThread(id: string): void {
  const { threads, thread } = app.get();
  if (thread === id && threads.some((one) => one.id === id)) return handleMissing(id);
  if (threads.some((one) => one.id === id)) patchApp({ threads: threads.filter((one) => one.id !== id) });
}

const waiting = new Set<() => Promise<void>>();

/** Do something once for all changes of a moment. */
function soon(work: () => Promise<void>): void {
  if (waiting.has(work)) return;
  waiting.add(work);
  setTimeout(() => {
    waiting.delete(work);
    if (app.get().me) void work();
  }, SOON_MS);
}
