/** What is open on the canvas: its tabs, their texts, and what was changed in them. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, notify, patch } from "../state/app";
import { createStore, useStore } from "../state/store";
import { bytesKind, type Kind, kindOf, pictureType, type View, viewsOf } from "./kind";

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
  bytes: Blob | null; // of what is no text
  cut: boolean; // there is more of it than can be shown
  versions: string[]; // what it was before, oldest first
  theirs: string | null; // what the file has become while it was changed here
  past: string[];
  future: string[];
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

export function update(id: string, change: Partial<Tab> | ((tab: Tab) => Tab)): void {
  canvas.set((old) => ({
    ...old,
    tabs: old.tabs.map((tab) => (tab.id !== id ? tab : typeof change === "function" ? change(tab) : { ...tab, ...change })),
  }));
}

export const activate = (id: string): void => canvas.set((old) => ({ ...old, active: id }));

export function fresh(id: string, name: string, file: Place | null): Tab {
  return {
    id, name, file, kind: bytesKind(name) ?? "code", view: "code", state: "loading", problem: "", gone: false, text: "", saved: "", bytes: null, cut: false, versions: [], theirs: null, past: [], future: [],
  }; // prettier-ignore
}

export function add(tab: Tab, show: boolean): void {
  canvas.set((old) => ({ tabs: [...old.tabs, tab], active: show || !old.active ? tab.id : old.active }));
}

/** Close a tab; the one beside it is shown. What was not saved is asked about first. */
export function close(id: string): boolean {
  const tab = tabOf(id);
  if (!tab) return true;
  if (tab.file && isChanged(tab) && !confirm(`Close ${tab.name} without saving what you changed?`)) return false;
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
    const goes = typed && typing.has(id);
    if (typed) typing.add(id);
    else typing.delete(id);
    return { ...tab, text, past: goes ? tab.past : [...tab.past.slice(-MOST_STEPS), tab.text], future: [] };
  });
}

const typing = new Set<string>();

export function undo(id: string): void {
  typing.delete(id);
  update(id, (tab) => (tab.past.length ? { ...tab, text: tab.past.at(-1)!, past: tab.past.slice(0, -1), future: [tab.text, ...tab.future] } : tab));
}

export function redo(id: string): void {
  typing.delete(id);
  update(id, (tab) => (tab.future.length ? { ...tab, text: tab.future[0]!, future: tab.future.slice(1), past: [...tab.past, tab.text] } : tab));
}

/** What the file was before a change of it, remembered for a comparison. */
export function remember(tab: Tab, before: string): string[] {
  return tab.versions.at(-1) === before ? tab.versions : [...tab.versions.slice(1 - MOST_VERSIONS), before];
}

// -- reading and writing ------------------------------------------------------------------------------------------

export async function load(id: string): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  try {
    const read = await (bytesKind(tab.name) ? readBytes(tab.file) : readText(tab.file));
    update(id, (old) => shown(old, read));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patch({ me: null });
    update(id, { state: "failed", problem: said(error) });
  }
}

interface Read {
  text: string;
  bytes: Blob | null;
  cut: boolean;
}

async function readBytes({ agent, path, thread }: Place): Promise<Read> {
  const bytes = await api.files.bytes(agent, path, thread);
  return { text: "", bytes: bytes.slice(0, bytes.size, pictureType(path) || "application/pdf"), cut: false };
}

async function readText({ agent, path, thread }: Place): Promise<Read> {
  const { content, encoding, truncated } = await api.files.read(agent, path, thread);
  if (encoding === "utf-8") return { text: content, bytes: null, cut: truncated };
  return { text: "", bytes: new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))]), cut: truncated };
}

/** A tab with what was read; the first time, in the way such things are looked at first. */
function shown(tab: Tab, read: Read): Tab {
  const kind = bytesKind(tab.name) ?? (read.bytes ? "binary" : kindOf(tab.name, read.text));
  const first = tab.state !== "ready";
  if (!first && read.text === tab.saved && !read.bytes) return tab;
  const base = { ...tab, ...read, kind, view: first ? viewsOf(kind)[0]! : fitting(tab.view, kind), state: "ready", problem: "", gone: false } as const;
  if (first || read.bytes) return { ...base, saved: read.text };
  return { ...base, saved: read.text, versions: remember(tab, tab.saved), theirs: null, past: [...tab.past, tab.text], future: [] };
}

/** The same view, if there is one of such things. */
function fitting(view: View, kind: Kind): View {
  return view === "diff" || viewsOf(kind).includes(view) ? view : viewsOf(kind)[0]!;
}

/** Look whether the file has become another; what was changed here is not lost by that. */
export async function refresh(id: string): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  if (tab.state !== "ready" || tab.kind === "image" || tab.kind === "pdf" || tab.kind === "binary") return load(id);
  const now = await readText(tab.file).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) update(id, { gone: true });
    return null; // whoever is away now comes back later
  });
  if (!now || now.bytes) return;
  update(id, (old) => {
    if (old.gone) old = { ...old, gone: false };
    if (now.text === old.saved || now.text === old.theirs) return old;
    if (now.text === old.text) return { ...old, saved: now.text, theirs: null, versions: remember(old, old.saved) };
    return isChanged(old) ? { ...old, theirs: now.text } : shown(old, now);
  });
}

/** Save a tab into its file; not over what somebody else wrote there meanwhile. */
export async function save(id: string, over = false): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab?.file || tab.bytes || tab.cut) return false;
  const { agent, path } = tab.file;
  const done = await attempt(async () => {
    const now = over ? null : await readText(tab.file!).catch(missing);
    if (now && !now.bytes && now.text !== tab.saved && now.text !== tab.text) {
      update(id, { theirs: now.text });
      notify(`${tab.name} was changed elsewhere; choose which of the two stays.`, "error");
      return false;
    }
    await api.files.write(agent, { path, content: tab.text, encoding: "utf-8" });
    update(id, (old) => written(old, tab.text));
    return true;
  });
  return done ?? false;
}

function written(tab: Tab, text: string): Tab {
  const kind = kindOf(tab.name, text);
  return { ...tab, saved: text, theirs: null, gone: false, versions: remember(tab, tab.theirs ?? tab.saved), kind, view: fitting(tab.view, kind) };
}

function missing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null; // it is written anew
  throw error;
}

/** Save a text that is in no file, or a file under another name. */
export async function saveAs(id: string, path: string): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab) return false;
  const { agent } = app.get();
  const written = await attempt(() => api.files.write(agent, { path, content: tab.text, encoding: "utf-8" }));
  if (!written) return false;
  const file = { agent, path, thread: "" };
  const name = path.split("/").at(-1)!;
  const moved = { ...tab, id: idOf(file), file, name, saved: tab.text, kind: kindOf(name, tab.text) };
  canvas.set((old) => ({ tabs: old.tabs.filter((one) => one.id !== moved.id).map((one) => (one.id === id ? moved : one)), active: moved.id }));
  return true;
}

export const idOf = ({ agent, path }: Place): string => JSON.stringify([agent, path]);

/** Take what the file has become, or keep what stands here. */
export function settle(id: string, choice: "theirs" | "mine"): void {
  update(id, (tab) => {
    if (tab.theirs === null) return tab;
    if (choice === "mine") return { ...tab, saved: tab.theirs, theirs: null, versions: remember(tab, tab.theirs) };
    return { ...tab, text: tab.theirs, saved: tab.theirs, theirs: null, versions: remember(tab, tab.saved), past: [...tab.past, tab.text], future: [] };
  });
}

/** A file was given another name, or another place. */
export function moved(agent: string, source: string, target: string): void {
  canvas.set((old) => {
    const tabs = old.tabs.map((tab) => renamed(tab, agent, source, target));
    const at = old.tabs.findIndex((tab) => tab.id === old.active);
    return { tabs, active: tabs[at]?.id ?? "" };
  });
}

function renamed(tab: Tab, agent: string, source: string, target: string): Tab {
  if (tab.file?.agent !== agent || !(tab.file.path === source || tab.file.path.startsWith(`${source}/`))) return tab;
  const file = { ...tab.file, path: target + tab.file.path.slice(source.length) };
  return { ...tab, id: idOf(file), file, name: file.path.split("/").at(-1)! };
}

const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Whoever signs in next has nothing to do with what was open. */
app.subscribe(() => {
  if (app.get().me === null && canvas.get().tabs.length) canvas.set(() => ({ tabs: [], active: "" }));
});
