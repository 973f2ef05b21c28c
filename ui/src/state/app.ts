/** The state of the page and its updates. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { type Conversation, EMPTY } from "./fold";
import { storedSidebar } from "./sidebar";
import { createStore, useStore } from "./store";

export type Panel =
  | "canvas"
  | "terminal"
  | "files"
  | "agent"
  | "trace"
  | "usage"
  | "approvals"
  | "replay"
  | "evals"
  | "cluster"
  | "settings";
export type Theme = "system" | "light" | "dark";

export interface Notice {
  id: number;
  kind: "info" | "error";
  text: string;
}

export interface AppState {
  me: api.Me | null | undefined; // undefined: unknown yet; null: signed out
  agents: api.AgentSummary[];
  agent: string;
  threads: api.Thread[];
  more: string; // the cursor of older threads
  thread: string; // the open one; empty for a new one
  opening: string; // the one that is being read
  trouble: string; // why the open one could not be read
  finds: boolean; // true while a text is searched in the open thread
  goal: number; // the entry of it that is looked for; 0 for its end
  conversations: Record<string, Conversation>;
  drafts: Record<string, string>; // unsent drafts, by thread or by subject
  attached: Record<string, api.Media[]>; // and their attachments
  approvals: api.Approval[]; // of all threads
  panel: Panel | null; // the main one
  beside: Panel | null; // and the one beside it
  below: Panel | null; // and the one below both
  wide: boolean; // true if the panels hide the conversation
  files: string[]; // paths of the agent's files that are open on the canvas
  file: string; // and the one that is shown
  run: string; // the run that the trace shows
  online: boolean;
  pushed: boolean; // true while the server reports changes
  notifies: boolean; // true if the user wants desktop notifications
  notices: Notice[];
  theme: Theme;
  overlay: "palette" | "shortcuts" | "menu" | null;
  sidebar: boolean; // true if the threads are shown, where there is room
  drawer: boolean; // true if the threads are shown as a drawer
}

/** State of a user, removed at sign-out. */
export const NOBODYS = {
  agents: [],
  agent: "",
  threads: [],
  more: "",
  thread: "",
  opening: "",
  trouble: "",
  finds: false,
  goal: 0,
  conversations: {},
  drafts: {},
  attached: {},
  approvals: [],
  panel: null,
  beside: null,
  below: null,
  wide: false,
  files: [],
  file: "",
  run: "",
  overlay: null,
  drawer: false,
};

export const app = createStore<AppState>({
  ...NOBODYS,
  me: undefined,
  online: true,
  pushed: false,
  notifies: false,
  notices: [],
  theme: storedTheme(),
  sidebar: storedSidebar(),
});

function storedTheme(): Theme {
  const kept = localStorage.getItem("wick-theme");
  return kept === "light" || kept === "dark" ? kept : "system";
}

export const useApp = <T>(select: (state: AppState) => T): T => useStore(app, select);

export function patchApp(change: Partial<AppState>): void {
  app.set((old) => ({ ...old, ...change }));
}

export const NEW = ""; // the conversation that has no thread yet

export function openConversation(state: AppState): Conversation {
  return state.conversations[state.thread] ?? EMPTY;
}

export function updateConversation(thread: string, change: (old: Conversation) => Conversation): void {
  app.set((old) => {
    const before = old.conversations[thread] ?? EMPTY;
    const now = change(before);
    return now === before ? old : { ...old, conversations: { ...old.conversations, [thread]: now } };
  });
}

/** Set a draft; null removes it. */
export function setDraft(about: string, text: string | null): void {
  app.set((old) => {
    const { [about]: _, ...drafts } = old.drafts;
    return { ...old, drafts: text === null || (!text && isThread(about)) ? drafts : { ...drafts, [about]: text } };
  });
}

const isThread = (about: string): boolean => !about.includes(" ");

/** A draft about something other than a thread: an edit, an answer. */
export const useDraft = (kind: string, id: string): [string | undefined, (text: string | null) => void] => {
  const about = `${kind} ${id}`;
  return [useApp((state) => state.drafts[about]), (text) => setDraft(about, text)];
};

export function setAttached(thread: string, media: api.Media[]): void {
  app.set((old) => ({ ...old, attached: { ...old.attached, [thread]: media } }));
}

export function setTheme(theme: Theme): void {
  localStorage.setItem("wick-theme", theme);
  patchApp({ theme });
}

// -- telling the user --------------------------------------------------------------------------------------------

let notices = 0;

export function notify(text: string, kind: Notice["kind"] = "info"): void {
  const id = ++notices;
  app.set((old) => ({
    ...old,
    notices: [...old.notices.filter((one) => one.text !== text).slice(-3), { id, kind, text }],
  }));
  setTimeout(() => dismiss(id), kind === "error" ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  app.set((old) => ({ ...old, notices: old.notices.filter((one) => one.id !== id) }));
}

const busy = new Set<string>();

/** Run something once at a time, for any number of clicks. */
export async function runOnce<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
  if (busy.has(name)) return undefined;
  busy.add(name);
  try {
    return await work();
  } finally {
    busy.delete(name);
  }
}

/** Run something that may fail; show the error, and sign in again after a 401. */
export async function tryRequest<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return undefined;
    if (error instanceof ApiError && error.status === 401) patchApp({ me: null });
    else notify(error instanceof Error ? error.message : String(error), "error");
    return undefined;
  }
}
