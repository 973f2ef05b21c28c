/** What is open on the canvas: its tabs, their texts, and what was changed in them. */

import { app } from "../state/app";
import { createStore, useStore } from "../state/store";
import { bytesKind, type Kind, type View, viewsOf } from "./kind";
import { PLAIN, type Spelling } from "./spelling";

export interface Place {
  agent: string;
  path: string;
  thread: string; // whose files are meant, where files are data of a conversation
}

export interface Tab {
  id: string;
  name: string;
  file: Place | null; // null: a text that is in no file yet
  kind: Kind;
  view: View;
  state: "loading" | "ready" | "failed";
  problem: string; // why it cannot be shown
  gone: boolean; // the file is no longer there
  text: string; // with the changes
  saved: string; // as the server has it
  spelling: Spelling; // of its file
  size: number; // of its file, in bytes
  bytes: Blob | null; // of what is no text
  cut: boolean; // there is more of it than can be shown
  versions: string[]; // what it was before, oldest first
  theirs: string | null; // what the file has become while it was changed here
  past: string[];
  future: string[];
  typing: boolean; // what is typed now belongs to the last step
}

export interface Canvas {
  tabs: Tab[];
  active: string;
}

const MOST_STEPS = 200;
const MOST_VERSIONS = 20;

/** A store of its own: it loads with the canvas, and typing here draws nothing else again. */
export const canvas = createStore<Canvas>({ tabs: [], active: "" });

export const useCanvas = <T>(select: (state: Canvas) => T): T => useStore(canvas, select);

export const tabOf = (id: string): Tab | undefined => canvas.get().tabs.find((tab) => tab.id === id);

export const isChanged = (tab: Tab): boolean => tab.text !== tab.saved || (tab.file === null && tab.text !== "");

/** Whether closing a tab would lose what somebody wrote; an answer stands in the conversation still. */
export const isUnsaved = (tab: Tab): boolean => tab.text !== (tab.file ? tab.saved : tab.versions[0]);

export function update(id: string, change: Partial<Tab> | ((tab: Tab) => Tab)): void {
  canvas.set((old) => ({
    ...old,
    tabs: old.tabs.map((tab) => (tab.id !== id ? tab : typeof change === "function" ? change(tab) : { ...tab, ...change })),
  }));
}

export const activate = (id: string): void => canvas.set((old) => ({ ...old, active: id }));

export function fresh(id: string, name: string, file: Place | null): Tab {
  return {
    id, name, file, kind: bytesKind(name) ?? "code", view: "code", state: "loading", problem: "", gone: false, text: "", saved: "", spelling: PLAIN, size: 0, bytes: null, cut: false, versions: [], theirs: null, past: [], future: [], typing: false,
  }; // prettier-ignore
}

export function add(tab: Tab, show: boolean): void {
  canvas.set((old) => ({ tabs: [...old.tabs, tab], active: show || !old.active ? tab.id : old.active }));
}

/** Close a tab; the one beside it is shown. What was not saved is asked about first. */
export function close(id: string): boolean {
  const tab = tabOf(id);
  if (!tab) return true;
  if (isUnsaved(tab) && !confirm(`Close ${tab.name} without saving your changes?`)) return false;
  canvas.set((old) => {
    const at = old.tabs.findIndex((one) => one.id === id);
    const tabs = old.tabs.filter((one) => one.id !== id);
    return { tabs, active: old.active === id ? (tabs[Math.min(at, tabs.length - 1)]?.id ?? "") : old.active };
  });
  return true;
}

// -- changing ----------------------------------------------------------------------------------------------------

/** Change the text. What is typed is one step until something else happens; a cell of a grid is a step of its own. */
export function change(id: string, text: string, typed = false): void {
  update(id, (tab) => {
    if (tab.text === text) return tab;
    const past = typed && tab.typing ? tab.past : stepped(tab);
    return { ...tab, text, past, future: [], typing: typed };
  });
}

/** The steps back, with the one to what stands there now. */
export const stepped = (tab: Tab): string[] => [...tab.past.slice(1 - MOST_STEPS), tab.text];

export function undo(id: string): void {
  update(id, (tab) => (tab.past.length ? { ...tab, text: tab.past.at(-1)!, past: tab.past.slice(0, -1), future: [tab.text, ...tab.future], typing: false } : tab));
}

export function redo(id: string): void {
  update(id, (tab) => (tab.future.length ? { ...tab, text: tab.future[0]!, future: tab.future.slice(1), past: stepped(tab), typing: false } : tab));
}

/** What the file was before a change of it, remembered for a comparison. */
export function remember(tab: Tab, before: string): string[] {
  return tab.versions.at(-1) === before ? tab.versions : [...tab.versions.slice(1 - MOST_VERSIONS), before];
}

/** The same view, if there is one of such things. */
export function fitting(view: View, kind: Kind): View {
  return view === "diff" || viewsOf(kind).includes(view) ? view : viewsOf(kind)[0]!;
}

/** Nobody leaves the page without being asked about what was not saved. */
addEventListener("beforeunload", (event) => {
  if (canvas.get().tabs.some(isUnsaved)) event.preventDefault();
});

/** Whoever signs in next has nothing to do with what was open; who has to sign in again has it still. */
app.subscribe(() => {
  const { me, agent } = app.get();
  if (!me && !agent && canvas.get().tabs.length) canvas.set(() => ({ tabs: [], active: "" }));
});
