/** The one state of the page, and how it is changed and told about. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { type Conversation, EMPTY } from "./fold";
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
  opening: string; // the one that is being read
  trouble: string; // why the open one could not be read
  goal: number; // the entry of it that is looked for; 0 for its end
  conversations: Record<string, Conversation>;
  drafts: Record<string, string>; // what is written and not sent, by thread; or by what else it is about
  attached: Record<string, api.Media[]>; // and what is to go along with it
  approvals: api.Approval[]; // of all threads
  panel: Panel | null;
  run: string; // the run that the trace shows
  online: boolean;
  notices: Notice[];
  theme: Theme;
  overlay: "palette" | "shortcuts" | "menu" | null;
  drawer: boolean; // whether the threads are shown where there is no room for them
}

/** What is somebody's, and goes when they go. */
export const NOBODYS = { agents: [], agent: "", threads: [], more: "", thread: "", opening: "", trouble: "", goal: 0, conversations: {}, drafts: {}, attached: {}, approvals: [], panel: null, run: "", overlay: null, drawer: false };

export const app = createStore<AppState>({ ...NOBODYS, me: undefined, online: true, notices: [], theme: stored() });

function stored(): Theme {
  const kept = localStorage.getItem("wick-theme");
  return kept === "light" || kept === "dark" ? kept : "system";
}

export const useApp = <T>(select: (state: AppState) => T): T => useStore(app, select);

export function patch(change: Partial<AppState>): void {
  app.set((old) => ({ ...old, ...change }));
}

export const NEW = ""; // the conversation that has no thread yet

export function conversation(state: AppState): Conversation {
  return state.conversations[state.thread] ?? EMPTY;
}

export function converse(thread: string, change: (old: Conversation) => Conversation): void {
  app.set((old) => {
    const before = old.conversations[thread] ?? EMPTY;
    const now = change(before);
    return now === before ? old : { ...old, conversations: { ...old.conversations, [thread]: now } };
  });
}

/** Keep what is being written; null forgets it. */
export function setDraft(about: string, text: string | null): void {
  app.set((old) => {
    const { [about]: _, ...drafts } = old.drafts;
    return { ...old, drafts: text === null || (!text && isThread(about)) ? drafts : { ...drafts, [about]: text } };
  });
}

const isThread = (about: string): boolean => !about.includes(" ");

/** What is being written about something that is no thread: an edit, an answer. */
export const useDraft = (kind: string, id: string): [string | undefined, (text: string | null) => void] => {
  const about = `${kind} ${id}`;
  return [useApp((state) => state.drafts[about]), (text) => setDraft(about, text)];
};

export function setAttached(thread: string, media: api.Media[]): void {
  app.set((old) => ({ ...old, attached: { ...old.attached, [thread]: media } }));
}

export function setTheme(theme: Theme): void {
  localStorage.setItem("wick-theme", theme);
  patch({ theme });
}

// -- telling the user --------------------------------------------------------------------------------------------

let notices = 0;

export function notify(text: string, kind: Notice["kind"] = "info"): void {
  const id = ++notices;
  app.set((old) => ({ ...old, notices: [...old.notices.filter((one) => one.text !== text).slice(-3), { id, kind, text }] }));
  setTimeout(() => dismiss(id), kind === "error" ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  app.set((old) => ({ ...old, notices: old.notices.filter((one) => one.id !== id) }));
}

const busy = new Set<string>();

/** Do something that is not done twice at a time, however often somebody clicks. */
export async function once<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
  if (busy.has(name)) return undefined;
  busy.add(name);
  try {
    return await work();
  } finally {
    busy.delete(name);
  }
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
