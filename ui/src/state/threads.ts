/** Threads: opened, begun, branched off, renamed and deleted. The address says which one is open. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, conversation, converse, NEW, notify, patch } from "./app";
import { EMPTY } from "./fold";
import { listAgain } from "./lists";
import { loaded } from "./loaded";
import { follow, isFollowed, settle } from "./talk";

/** Open a thread, at its end or at an entry. */
export async function openThread(id: string, goal = 0): Promise<void> {
  if (!id) return newThread();
  patch({ thread: id, goal, drawer: false });
  if (isFollowed(id)) return; // what it says comes by itself
  if (app.get().conversations[id]) return settle(id);
  patch({ opening: id });
  try {
    const detail = await api.threads.get(id);
    if (detail.agent_id && app.get().thread === id) patch({ agent: detail.agent_id });
    converse(id, () => loaded(detail));
    if (detail.run_id) void follow(detail.run_id, id);
  } catch (error) {
    if (app.get().thread === id) newThread();
    if (error instanceof ApiError && error.status === 404) notify("There is no such thread; it may have been deleted.", "error");
    else await attempt(() => Promise.reject(error as Error));
  } finally {
    if (app.get().opening === id) patch({ opening: "" });
  }
}

export function newThread(): void {
  patch({ thread: NEW, drawer: false });
  if (!conversation(app.get()).pending.length) converse(NEW, () => EMPTY);
}

/** Talk to another agent; that is another conversation. */
export function chooseAgent(agent: string): void {
  patch({ agent });
  newThread();
}

export async function forkAt(seq: number): Promise<void> {
  const { thread } = app.get();
  await attempt(async () => {
    const fork = await api.threads.fork(thread, seq);
    await listAgain();
    await openThread(fork.id);
    notify("This is a fork: the thread it came from stays as it is.");
  });
}

export async function renameThread(id: string, title: string): Promise<void> {
  const changed = title.trim() ? await attempt(() => api.threads.rename(id, title.trim())) : undefined;
  if (changed) app.set((old) => ({ ...old, threads: old.threads.map((row) => (row.id === id ? changed : row)) }));
}

export async function removeThread(id: string): Promise<void> {
  await attempt(async () => {
    await api.threads.remove(id);
    if (app.get().thread === id) newThread();
    app.set((old) => {
      const { [id]: _, ...conversations } = old.conversations;
      return { ...old, conversations, threads: old.threads.filter((row) => row.id !== id), approvals: old.approvals.filter((one) => one.thread_id !== id) };
    });
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
