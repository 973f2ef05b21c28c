/** Tabs of the canvas: their texts and changes. */

import { app, patchApp } from "../state/app";
import { createStore, useStore } from "../state/store";
import { bytesKind, type Kind, type View, viewsOf } from "./kind";
import { PLAIN, type Spelling } from "./lineFormat";

export interface Place {
  agent: string;
  path: string;
  thread: string; // the thread, where files are data of a conversation
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
  bytes: Blob | null; // of binary files
  cut: boolean; // there is more of it than can be shown
  versions: string[]; // earlier versions, oldest first
  theirs: string | null; // the file's version while there are local changes
  past: string[];
  future: string[];
  typing: boolean; // typing extends the last undo step
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

/** True if closing a tab would lose changes; an answer is still in the conversation. */
export const isUnsaved = (tab: Tab): boolean => tab.text !== (tab.file ? tab.saved : tab.versions[0]);

export function updateTab(id: string, change: Partial<Tab> | ((tab: Tab) => Tab)): void {
  canvas.set((old) => ({
    ...old,
    tabs: old.tabs.map((tab) =>
      tab.id !== id ? tab : typeof change === "function" ? change(tab) : { ...tab, ...change },
    ),
  }));
}

export const activateTab = (id: string): void => canvas.set((old) => ({ ...old, active: id }));

export function createTab(id: string, name: string, file: Place | null): Tab {
  return {
    id, name, file, kind: bytesKind(name) ?? "code", view: "code", state: "loading", problem: "", gone: false, text: "", saved: "", spelling: PLAIN, size: 0, bytes: null, cut: false, versions: [], theirs: null, past: [], future: [], typing: false,
  }; // prettier-ignore
}

export function addTab(tab: Tab, show: boolean): void {
  canvas.set((old) => ({ tabs: [...old.tabs, tab], active: show || !old.active ? tab.id : old.active }));
}

/** Close a tab and show its neighbour. Unsaved changes ask first. */
export function closeTab(id: string): boolean {
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

/** Change the text. Typing is one undo step until another action; a grid cell is a step of its own. */
export function changeText(id: string, text: string, typed = false): void {
  updateTab(id, (tab) => {
    if (tab.text === text) return tab;
    const past = typed && tab.typing ? tab.past : undoSteps(tab);
    return { ...tab, text, past, future: [], typing: typed };
  });
}

/** The undo steps including the current text. */
export const undoSteps = (tab: Tab): string[] => [...tab.past.slice(1 - MOST_STEPS), tab.text];

export function undo(id: string): void {
  updateTab(id, (tab) =>
    tab.past.length
      ? {
          ...tab,
          text: tab.past.at(-1)!,
          past: tab.past.slice(0, -1),
          future: [tab.text, ...tab.future],
          typing: false,
        }
      : tab,
  );
}

export function redo(id: string): void {
  updateTab(id, (tab) =>
    tab.future.length
      ? { ...tab, text: tab.future[0]!, future: tab.future.slice(1), past: undoSteps(tab), typing: false }
      : tab,
  );
}

/** Remember the old version of a file for a comparison. */
export function rememberVersion(tab: Tab, before: string): string[] {
  return tab.versions.at(-1) === before ? tab.versions : [...tab.versions.slice(1 - MOST_VERSIONS), before];
}

/** The same view, if there is one of such things. */
export function fittingView(view: View, kind: Kind): View {
  return view === "diff" || viewsOf(kind).includes(view) ? view : viewsOf(kind)[0]!;
}

/** Leaving the page with unsaved changes asks first. */
addEventListener("beforeunload", (event) => {
  if (canvas.get().tabs.some(isUnsaved)) event.preventDefault();
});

/** The address has the files of the agent that are open. */
canvas.subscribe(() => {
  const { tabs, active } = canvas.get();
  const [{ agent, files, file }, paths] = [
    app.get(),
    tabs.flatMap((tab) => (tab.file?.agent === app.get().agent ? [tab.file.path] : [])),
  ];
  const shown = tabs.find((tab) => tab.id === active && tab.file?.agent === agent)?.file?.path ?? "";
  if (shown !== file || paths.join("\n") !== files.join("\n")) patchApp({ files: paths, file: shown });
});

/** Another user does not see the tabs; the same user does after a new sign-in. */
app.subscribe(() => {
  const { me, agent } = app.get();
  if (!me && !agent && canvas.get().tabs.length) canvas.set(() => ({ tabs: [], active: "" }));
});
