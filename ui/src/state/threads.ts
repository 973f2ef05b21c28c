/** Threads: open, create, fork, rename and delete. The URL has the open one. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { readAddress, writeAddress } from "./address";
import {
  app,
  tryRequest,
  openConversation,
  updateConversation,
  NEW,
  notify,
  type AppState,
  runOnce,
  patchApp,
  setDraft,
} from "./app";
import { EMPTY } from "./fold";
import { followRun, followOnlyRun, settle } from "./runStream";
import { listAgain } from "./lists";
import { mergeThread } from "./threadItems";

/** Open a thread, at its end or at an entry. */
export async function openThread(id: string, goal = 0): Promise<void> {
  if (!id) return newThread();
  const known = app.get().conversations[id];
  patchApp({
    thread: id,
    goal,
    drawer: false,
    opening: "",
    trouble: "",
    ...(known?.agent ? { agent: known.agent } : {}),
  });
  followOnlyRun(id);
  if (!known?.last) return readThread(id);
  if ((await settle(id)) === "gone") handleMissing(id);
}

/** Read a thread that has not been seen yet. */
export async function readThread(id: string): Promise<void> {
  patchApp({ opening: id, trouble: "" });
  try {
    const detail = await api.threads.get(id);
    if (app.get().thread === id) patchApp({ agent: detail.agent_id });
    updateConversation(id, (old) => mergeThread(old, detail));
    if (detail.run_id) followRun(detail.run_id, id);
  } catch (error) {
    if (app.get().thread === id) await handleUnreadable(id, error);
  } finally {
    if (app.get().opening === id) patchApp({ opening: "" });
  }
}

async function handleUnreadable(id: string, error: unknown): Promise<void> {
  if (error instanceof ApiError && error.status === 404) handleMissing(id);
  else if (error instanceof ApiError && error.status !== 401) patchApp({ trouble: error.message });
  else await tryRequest(() => Promise.reject(error as Error));
}

/** The thread does not exist any more; its draft is kept. */
export function handleMissing(id: string): void {
  closeThread(id);
  notify("Thread not found; it may have been deleted.", "error");
}

export function newThread(): void {
  patchApp({ thread: NEW, trouble: "", drawer: false });
  followOnlyRun(NEW);
  if (!openConversation(app.get()).pending.length) updateConversation(NEW, () => EMPTY);
}

/** Choose the agent of the next message; the open thread stays where it is. */
export const chooseAgent = (agent: string): void => patchApp({ agent });

/** The agent of the open thread, if another one is chosen; else empty. */
export function otherAgent(state: AppState): string {
  const { agent } = openConversation(state);
  return state.thread && agent && agent !== state.agent ? agent : "";
}

/** Continue the open thread with the chosen agent, in a fork; return the fork. */
export async function continueWithAgent(): Promise<string | undefined> {
  const { thread, agent } = app.get();
  return runOnce("fork", () =>
    tryRequest(async () => {
      const made = await api.threads.fork(thread, undefined, agent);
      await listAgain();
      await openThread(made.id);
      return made.id;
    }),
  );
}

export const forkAt = (seq: number): Promise<void | undefined> =>
  runOnce("fork", () => tryRequest(() => fork(app.get().thread, seq)));

/** Open a fork of a thread after an entry, with a draft of its next message. */
export const forkAndEdit = (thread: string, seq: number, draft: string): Promise<void | undefined> =>
  runOnce("fork", () =>
    tryRequest(async () => {
      const made = await api.threads.fork(thread, seq);
      await listAgain();
      setDraft(made.id, draft);
      await openThread(made.id);
      document.getElementById("message")?.focus();
      notify("Forked; change the message, or send it again.");
    }),
  );

async function fork(thread: string, seq: number): Promise<void> {
  const made = await api.threads.fork(thread, seq);
  await listAgain();
  await openThread(made.id);
  notify("Forked; the original thread is unchanged.");
}

export async function renameThread(id: string, title: string): Promise<void> {
  const changed = title.trim() ? await tryRequest(() => api.threads.rename(id, title.trim())) : undefined;
  if (changed) app.set((old) => ({ ...old, threads: old.threads.map((row) => (row.id === id ? changed : row)) }));
}

export async function removeThread(id: string): Promise<void> {
  await runOnce(`remove ${id}`, () =>
    tryRequest(async () => {
      await api.threads.remove(id);
      setDraft(id, null);
      closeThread(id);
    }),
  );
}

/** Remove a deleted thread from the page. */
function closeThread(id: string): void {
  if (app.get().thread === id) {
    history.replaceState(null, "", location.pathname); // going back leads nowhere
    const { [id]: draft, [NEW]: other } = app.get().drafts;
    if (draft && !other) setDraft(NEW, draft);
    newThread();
  }
  app.set((old) => {
    const { [id]: _, ...conversations } = old.conversations;
    return {
      ...old,
      conversations,
      threads: old.threads.filter((row) => row.id !== id),
      approvals: old.approvals.filter((one) => one.thread_id !== id),
    };
  });
}

// -- the address -------------------------------------------------------------------------------------------------

/** The address follows the page, and the page follows the address. Only another thread is a step to go back from. */
export function keepAddress(): void {
  app.subscribe(() => {
    const state = app.get();
    const [wanted, current] = [writeAddress(state), readAddress()];
    if (!state.me || wanted === writeAddress(current)) return;
    const change = state.thread === current.thread ? "replaceState" : "pushState";
    history[change](null, "", wanted || location.pathname);
  });
  addEventListener("popstate", () => {
    const { thread, files, file, ...layout } = readAddress();
    if (!app.get().me) return;
    if (thread !== app.get().thread) void openThread(thread); // first: the address follows the thread at once
    patchApp(layout);
    if (files.length) void import("../canvas/open").then(({ openFiles }) => openFiles(files, file));
  });
}
