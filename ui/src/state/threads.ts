/** Threads: opened, begun, branched off, renamed and deleted. The address says which one is open. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, conversation, converse, NEW, notify, once, patch, setDraft } from "./app";
import { EMPTY } from "./fold";
import { follow, followOnly, settle } from "./following";
import { listAgain } from "./lists";
import { merged } from "./loaded";

/** Open a thread, at its end or at an entry. */
export async function openThread(id: string, goal = 0): Promise<void> {
  if (!id) return newThread();
  const known = app.get().conversations[id];
  patch({ thread: id, goal, drawer: false, opening: "", trouble: "", ...(known?.agent ? { agent: known.agent } : {}) });
  followOnly(id);
  if (!known?.last) return readThread(id);
  if ((await settle(id)) === "gone") vanished(id);
}

/** Read a thread that has not been seen yet. */
export async function readThread(id: string): Promise<void> {
  patch({ opening: id, trouble: "" });
  try {
    const detail = await api.threads.get(id);
    if (app.get().thread === id) patch({ agent: detail.agent_id });
    converse(id, (old) => merged(old, detail));
    if (detail.run_id) follow(detail.run_id, id);
  } catch (error) {
    if (app.get().thread === id) await unreadable(id, error);
  } finally {
    if (app.get().opening === id) patch({ opening: "" });
  }
}

async function unreadable(id: string, error: unknown): Promise<void> {
  if (error instanceof ApiError && error.status === 404) vanished(id);
  else if (error instanceof ApiError && error.status !== 401) patch({ trouble: error.message });
  else await attempt(() => Promise.reject(error as Error));
}

/** The thread is not there, or not any more; what was being written in it stays. */
export function vanished(id: string): void {
  drop(id);
  notify("Thread not found; it may have been deleted.", "error");
}

export function newThread(): void {
  patch({ thread: NEW, trouble: "", drawer: false });
  followOnly(NEW);
  if (!conversation(app.get()).pending.length) converse(NEW, () => EMPTY);
}

/** Talk to another agent; that is another conversation. */
export function chooseAgent(agent: string): void {
  patch({ agent });
  newThread();
}

export const forkAt = (seq: number): Promise<void | undefined> => once("fork", () => attempt(() => fork(app.get().thread, seq)));

async function fork(thread: string, seq: number): Promise<void> {
  const made = await api.threads.fork(thread, seq);
  await listAgain();
  await openThread(made.id);
  notify("Forked; the original thread is unchanged.");
}

export async function renameThread(id: string, title: string): Promise<void> {
  const changed = title.trim() ? await attempt(() => api.threads.rename(id, title.trim())) : undefined;
  if (changed) app.set((old) => ({ ...old, threads: old.threads.map((row) => (row.id === id ? changed : row)) }));
}

export async function removeThread(id: string): Promise<void> {
  await once(`remove ${id}`, () => attempt(async () => {
    await api.threads.remove(id);
    setDraft(id, null);
    drop(id);
  }));
}

/** A thread that is not there any more goes from the page. */
function drop(id: string): void {
  if (app.get().thread === id) {
    history.replaceState(null, "", location.pathname); // going back leads nowhere
    const { [id]: draft, [NEW]: other } = app.get().drafts;
    if (draft && !other) setDraft(NEW, draft);
    newThread();
  }
  app.set((old) => {
    const { [id]: _, ...conversations } = old.conversations;
    return { ...old, conversations, threads: old.threads.filter((row) => row.id !== id), approvals: old.approvals.filter((one) => one.thread_id !== id) };
  });
}

// -- the address -------------------------------------------------------------------------------------------------

export const threadInAddress = (): string => new URLSearchParams(location.hash.slice(1)).get("thread") ?? NEW;

/** The address follows the thread that is open, and the thread follows the address. */
export function keepAddress(): void {
  app.subscribe(() => {
    const { thread, me } = app.get();
    if (!me || thread === threadInAddress()) return;
    history.pushState(null, "", thread ? `#thread=${encodeURIComponent(thread)}` : location.pathname);
  });
  addEventListener("popstate", () => {
    const wanted = threadInAddress();
    if (app.get().me && wanted !== app.get().thread) void openThread(wanted);
  });
}
