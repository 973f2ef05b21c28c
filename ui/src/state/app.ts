/** The one state of the page, and what changes it. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { type Conversation, EMPTY, fold, type Event, said } from "./fold";
import { loaded } from "./loaded";
import { createStore, useStore } from "./store";

export type Panel = "canvas" | "terminal" | "files" | "agent" | "trace" | "usage" | "approvals" | "replay";
export type Theme = "system" | "light" | "dark";

export interface Notice {
  id: number;
  kind: "info" | "error";
  text: string;
}

export interface AppState {
  me: api.Me | null | undefined; // undefined: not known yet; null: nobody is signed in
  agents: api.AgentSummary[];
  agent: string;
  threads: api.Thread[];
  more: string; // the cursor of older threads
  thread: string; // the one that is open; empty for one that has not begun
  conversations: Record<string, Conversation>;
  approvals: api.Approval[]; // of all threads
  panel: Panel | null;
  run: string; // the run that the trace shows
  online: boolean;
  notices: Notice[];
  theme: Theme;
  overlay: "palette" | "shortcuts" | null;
}

export const app = createStore<AppState>({
  me: undefined,
  agents: [],
  agent: "",
  threads: [],
  more: "",
  thread: "",
  conversations: {},
  approvals: [],
  panel: null,
  run: "",
  online: true,
  notices: [],
  theme: (localStorage.getItem("wick-theme") as Theme | null) ?? "system",
  overlay: null,
});

export const useApp = <T>(select: (state: AppState) => T): T => useStore(app, select);

export function patch(change: Partial<AppState>): void {
  app.set((old) => ({ ...old, ...change }));
}

export const NEW = ""; // the conversation that has no thread yet

export function conversation(state: AppState): Conversation {
  return state.conversations[state.thread] ?? EMPTY;
}

function converse(thread: string, change: (old: Conversation) => Conversation): void {
  app.set((old) => ({ ...old, conversations: { ...old.conversations, [thread]: change(old.conversations[thread] ?? EMPTY) } }));
}

// -- telling the user --------------------------------------------------------------------------------------------

let notices = 0;

export function notify(text: string, kind: Notice["kind"] = "info"): void {
  const id = ++notices;
  app.set((old) => ({ ...old, notices: [...old.notices.slice(-3), { id, kind, text }] }));
  setTimeout(() => dismiss(id), kind === "error" ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  app.set((old) => ({ ...old, notices: old.notices.filter((one) => one.id !== id) }));
}

/** Do something that may fail; what goes wrong is said, and who was signed out signs in again. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return undefined;
    if (error instanceof ApiError && error.status === 401) patch({ me: null });
    else notify(error instanceof Error ? error.message : String(error), "error");
    return undefined;
  }
}

export function setTheme(theme: Theme): void {
  localStorage.setItem("wick-theme", theme);
  patch({ theme });
}

// -- signing in --------------------------------------------------------------------------------------------------

export async function begin(): Promise<void> {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) history.replaceState(null, "", location.pathname); // it works once, and is nobody else's business
  try {
    patch({ me: ticket ? await api.auth.signIn({ ticket }) : await api.auth.me() });
    await refresh();
  } catch (error) {
    patch({ me: null });
    if (ticket && error instanceof ApiError) notify(error.message, "error");
  }
}

export async function signIn(token: string): Promise<void> {
  await attempt(async () => {
    patch({ me: await api.auth.signIn({ token }) });
    await refresh();
  });
}

export async function signOut(): Promise<void> {
  await attempt(() => api.auth.signOut());
  patch({ me: null, threads: [], conversations: {}, thread: NEW, approvals: [] });
}

export async function refresh(): Promise<void> {
  const [agents, page, waiting] = await Promise.all([api.agents.list(), api.threads.list(), api.approvals.list()]);
  const wanted = app.get().agent || (agents.agents.find((one) => one.agent_id === "default") ?? agents.agents[0])?.agent_id || "";
  patch({ agents: agents.agents, agent: wanted, threads: page.threads, more: page.next ?? "", approvals: waiting.approvals });
}

// -- threads -----------------------------------------------------------------------------------------------------

export async function openThread(id: string): Promise<void> {
  if (!id) return newThread();
  patch({ thread: id });
  await attempt(async () => {
    const detail = await api.threads.get(id);
    if (detail.agent_id) patch({ agent: detail.agent_id });
    converse(id, () => loaded(detail));
    if (detail.run_id) void follow(detail.run_id, id);
  });
}

export function newThread(): void {
  patch({ thread: NEW });
  converse(NEW, () => EMPTY);
}

export async function moreThreads(): Promise<void> {
  const { more, threads } = app.get();
  if (!more) return;
  await attempt(async () => {
    const page = await api.threads.list(more);
    patch({ threads: [...threads, ...page.threads], more: page.next ?? "" });
  });
}

async function listAgain(): Promise<void> {
  const page = await api.threads.list().catch(() => null);
  if (page) patch({ threads: page.threads, more: page.next ?? "" });
}

// -- talking -----------------------------------------------------------------------------------------------------

const following = new Map<string, AbortController>(); // by run

/** Say something: it begins a run, or steers the one that goes on. */
export async function send(messages: api.MessageIn[]): Promise<void> {
  const { thread, agent } = app.get();
  const key = crypto.randomUUID();
  if (conversation(app.get()).run) return steer(thread, messages, key);
  const shown = thread;
  const stop = new AbortController();
  await attempt(async () => {
    const stream = await again(() => api.ask(agent, messages, thread, key, stop.signal));
    following.set(stream.run, stop);
    if (!shown) adopt(stream.thread);
    converse(stream.thread, (old) => ({ ...old, run: stream.run }));
    void listAgain();
    await consume(stream, stream.run, stream.thread, stop);
  });
}

async function steer(thread: string, messages: api.MessageIn[], key: string): Promise<void> {
  await attempt(() => again(() => api.threads.say(thread, messages, key)));
}

/** A request that can be made twice, since it has a key; the connection may come back. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (let wait = 500; ; wait *= 2) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 0 || wait > 8_000) throw error;
      patch({ online: false });
      await pause(wait);
    }
  }
}

function adopt(thread: string): void {
  app.set((old) => {
    const { [NEW]: begun = EMPTY, ...rest } = old.conversations;
    return { ...old, thread: old.thread === NEW ? thread : old.thread, conversations: { ...rest, [thread]: begun } };
  });
}

/** Watch a run to its end, through whatever happens to the connection. */
export async function follow(run: string, thread: string): Promise<void> {
  if (following.has(run)) return;
  const stop = new AbortController();
  following.set(run, stop);
  await consume(null, run, thread, stop);
}

async function consume(first: api.Stream | null, run: string, thread: string, stop: AbortController): Promise<void> {
  try {
    for (let stream = first, wait = 250; !stop.signal.aborted; wait = Math.min(wait * 2, 5_000)) {
      try {
        stream ??= await api.watch(run, resumeFrom(thread), stop.signal);
        if (stream === null) return;
        patch({ online: true });
        for await (const frame of stream.frames) {
          wait = 250;
          if (take(thread, frame.id, frame.event, frame.data)) return;
        }
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
        if (stop.signal.aborted) return;
      }
      stream = null;
      patch({ online: false });
      await pause(wait);
    }
  } catch (error) {
    await attempt(() => Promise.reject(error as Error));
  } finally {
    following.delete(run);
    void listAgain();
  }
}

function resumeFrom(thread: string): string {
  const { last, part } = app.get().conversations[thread] ?? EMPTY;
  return last ? (part === Infinity ? String(last) : `${last}.${part}`) : "";
}

/** Fold a frame into its conversation; whether it was the last of its run. */
function take(thread: string, id: string, name: string, data: string): boolean {
  const event = JSON.parse(data) as Event;
  converse(thread, (old) => fold(old, id, { ...event, event: event.event ?? name }));
  if (name === "on_approval_request" || name === "on_approval_response") void refreshApprovals();
  return name === "done" || name === "error";
}

export async function refreshApprovals(): Promise<void> {
  const waiting = await api.approvals.list().catch(() => null);
  if (waiting) patch({ approvals: waiting.approvals });
}

export async function answer(id: string, decision: api.Decision): Promise<void> {
  const asked = app.get().approvals.find((one) => one.id === id);
  await attempt(async () => {
    const decided = await api.approvals.answer(id, decision);
    app.set((old) => ({ ...old, approvals: old.approvals.filter((one) => one.id !== id) }));
    converse(decided.thread_id, (old) => ({ ...old, approvals: old.approvals.filter((one) => one.id !== id) }));
    if (asked?.run_id) void follow(asked.run_id, decided.thread_id);
  });
}

export async function stop(): Promise<void> {
  const { run } = conversation(app.get());
  if (run) await attempt(() => api.runs.cancel(run));
}

/** Go back to before a message and say something else there, or the same again. */
export async function retry(seq: number, words: string): Promise<void> {
  const { thread } = app.get();
  await attempt(async () => {
    const detail = await api.threads.rewind(thread, Math.max(seq - 1, 0));
    converse(thread, () => loaded(detail));
    await send([{ role: "user", content: words }]);
  });
}

export async function forkAt(seq: number): Promise<void> {
  const { thread } = app.get();
  await attempt(async () => {
    const fork = await api.threads.fork(thread, seq);
    await listAgain();
    await openThread(fork.id);
  });
}

export { said };

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
