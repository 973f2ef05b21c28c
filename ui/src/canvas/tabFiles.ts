/** Read files into tabs, reload them, and save tabs, without losing changes on either side. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, tryRequest, notify, patchApp } from "../state/app";
import { bytesKind, kindOf, pictureType, viewsOf } from "./kind";
import { badName } from "./names";
import { parseSpelling, type Spelling, applySpelling } from "./lineFormat";
import {
  canvas,
  fittingView,
  isChanged,
  type Place,
  rememberVersion,
  undoSteps,
  type Tab,
  tabOf,
  updateTab,
} from "./tabs";

const LIGHT_BYTES = 300_000; // larger files are read again only if the size changed

export const idOf = ({ agent, path }: Place): string => JSON.stringify([agent, path]);

// -- reading ------------------------------------------------------------------------------------------------------

interface Read {
  text: string;
  spelling: Spelling;
  size: number;
  bytes: Blob | null;
  cut: boolean;
}

export async function loadTab(id: string): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  try {
    const read = await readFile(tab);
    updateTab(id, (old) => applyRead(old, read));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patchApp({ me: null });
    updateTab(id, { state: "failed", problem: error instanceof Error ? error.message : String(error) });
  }
}

const readFile = (tab: Tab): Promise<Read> => (bytesKind(tab.name) ? readBytes(tab.file!) : readText(tab.file!));

async function readBytes({ agent, path, thread }: Place): Promise<Read> {
  const bytes = await api.files.bytes(agent, path, thread);
  return {
    ...parseSpelling(""),
    size: bytes.size,
    bytes: bytes.slice(0, bytes.size, pictureType(path) || "application/pdf"),
    cut: false,
  };
}

async function readText({ agent, path, thread }: Place): Promise<Read> {
  const { content, encoding, truncated, size } = await api.files.read(agent, path, thread);
  if (encoding === "utf-8") return { ...parseSpelling(content), size, bytes: null, cut: truncated };
  return {
    ...parseSpelling(""),
    size,
    bytes: new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))]),
    cut: truncated,
  };
}

/** A tab with its content; at first with the default view. */
function applyRead(tab: Tab, read: Read): Tab {
  const kind = bytesKind(tab.name) ?? (read.bytes ? "binary" : kindOf(tab.name, read.text));
  const now = { ...tab, ...read, kind, saved: read.text, state: "ready", problem: "", gone: false } as const;
  if (tab.state !== "ready") return { ...now, view: viewsOf(kind)[0]! };
  const view = fittingView(tab.view, kind);
  if (read.bytes) return { ...now, view };
  return {
    ...now,
    view,
    versions: rememberVersion(tab, tab.saved),
    theirs: null,
    past: undoSteps(tab),
    future: [],
    typing: false,
  };
}

/** Reload a changed file; local changes are kept. `surely`: for any size. */
export async function refreshTab(id: string, surely = false): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  if (tab.state !== "ready") return loadTab(id);
  try {
    if (
      !surely &&
      tab.size > LIGHT_BYTES &&
      (await api.files.size(tab.file.agent, tab.file.path, tab.file.thread)) === tab.size
    )
      return;
    const now = await readFile(tab);
    const same = now.bytes && tab.bytes ? await isSame(now.bytes, tab.bytes) : false;
    updateTab(id, (old) => (same ? { ...old, gone: false } : mergeRead({ ...old, gone: false }, now)));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) updateTab(id, { gone: true }); // other errors are temporary
  }
}

async function isSame(a: Blob, b: Blob): Promise<boolean> {
  if (a.size !== b.size) return false;
  const [one, other] = await Promise.all([a.arrayBuffer(), b.arrayBuffer()]);
  const known = new Uint8Array(other);
  return new Uint8Array(one).every((byte, at) => byte === known[at]);
}

/** A tab that meets its file as it is now. */
function mergeRead(tab: Tab, now: Read): Tab {
  if (now.bytes) return isChanged(tab) ? tab : applyRead(tab, now);
  const known = { ...tab, spelling: now.spelling, size: now.size };
  if (!tab.bytes && (now.text === tab.saved || now.text === tab.theirs)) return known;
  if (now.text === tab.text && !tab.bytes)
    return { ...known, saved: now.text, theirs: null, versions: rememberVersion(tab, tab.saved) };
  return isChanged(tab) ? { ...known, theirs: now.text } : applyRead(tab, now);
}

// -- writing ------------------------------------------------------------------------------------------------------

/** Save a tab into its file, unless the file was changed meanwhile. */
export async function saveTab(id: string): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab?.file || tab.bytes || tab.cut || tab.state !== "ready") return false;
  const { agent, path } = tab.file;
  const done = await tryRequest(async () => {
    const now = await readText(tab.file!).catch(ignoreMissing);
    if (now && !now.bytes && now.text !== tab.saved && now.text !== tab.text) {
      updateTab(id, { theirs: now.text });
      notify(`${tab.name} was changed elsewhere; choose which version to keep.`, "error");
      return false;
    }
    const { bytes_written } = await api.files.write(agent, {
      path,
      content: applySpelling(tab.text, tab.spelling),
      encoding: "utf-8",
    });
    updateTab(id, (old) => applySaved(old, tab.text, bytes_written));
    return true;
  });
  return done ?? false;
}

function applySaved(tab: Tab, text: string, size: number): Tab {
  const kind = kindOf(tab.name, text);
  const before = tab.theirs ?? tab.saved;
  return {
    ...tab,
    saved: text,
    size,
    theirs: null,
    gone: false,
    versions: before === text ? tab.versions : rememberVersion(tab, before),
    kind,
    view: fittingView(tab.view, kind),
    typing: false,
  };
}

function ignoreMissing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null; // it is written anew
  throw error;
}

/** Save a text without a file, or a file under another name. Overwriting asks first. */
export async function saveAs(id: string, path: string): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab) return false;
  if (path === tab.file?.path) return saveTab(id);
  const wrong = badName(path);
  if (wrong) return (notify(wrong, "error"), false);
  const agent = tab.file?.agent ?? app.get().agent;
  const done = await tryRequest(async () => {
    if ((await findExisting(agent, [path])).length && !confirm(`${path} already exists. Overwrite it?`)) return false;
    const { bytes_written } = await api.files.write(agent, {
      path,
      content: applySpelling(tab.text, tab.spelling),
      encoding: "utf-8",
    });
    moveTab(tabOf(id) ?? tab, tab.text, { agent, path, thread: tab.file?.thread ?? app.get().thread }, bytes_written);
    return true;
  });
  return done ?? false;
}

/** A tab is of another file now; one that showed that file is the same as this one. */
function moveTab(tab: Tab, saved: string, file: Place, size: number): void {
  const made = { ...withPlace(tab, file), saved, size, gone: false, theirs: null };
  canvas.set((old) => ({
    tabs: old.tabs
      .filter((one) => one.id !== made.id || one.id === tab.id)
      .map((one) => (one.id === tab.id ? made : one)),
    active: made.id,
  }));
}

/** A tab at another place, where it may be something else by its name. */
function withPlace(tab: Tab, file: Place): Tab {
  const name = file.path.split("/").at(-1)!;
  const kind = tab.bytes ? tab.kind : kindOf(name, tab.text);
  return { ...tab, id: idOf(file), file, name, kind, view: kind === tab.kind ? tab.view : viewsOf(kind)[0]! };
}

/** Return those of the paths that exist. */
export async function findExisting(agent: string, paths: string[]): Promise<string[]> {
  const folderOf = (path: string) => (path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : ".");
  const found = new Set<string>();
  for (const folder of new Set(paths.map(folderOf))) {
    const listing = await api.files.list(agent, folder).catch(ignoreMissing);
    for (const { name } of listing?.entries ?? []) found.add(folder === "." ? name : `${folder}/${name}`);
  }
  return paths.filter((path) => found.has(path));
}

/** Resolve a conflict: take the file's version or keep the local one. */
export function resolveConflict(id: string, choice: "theirs" | "mine"): void {
  updateTab(id, (tab) => {
    if (tab.theirs === null) return tab;
    if (choice === "mine")
      return { ...tab, saved: tab.theirs, theirs: null, versions: rememberVersion(tab, tab.theirs) };
    return {
      ...tab,
      text: tab.theirs,
      saved: tab.theirs,
      theirs: null,
      versions: rememberVersion(tab, tab.saved),
      past: undoSteps(tab),
      future: [],
      typing: false,
    };
  });
}

/** A file was given another name, or another place. */
export function renameTabs(agent: string, source: string, target: string): void {
  canvas.set((old) => {
    const tabs = old.tabs.map((tab) =>
      isWithin(tab, agent, source)
        ? withPlace(tab, { ...tab.file!, path: target + tab.file!.path.slice(source.length) })
        : tab,
    );
    const at = old.tabs.findIndex((tab) => tab.id === old.active);
    return { tabs, active: tabs[at]?.id ?? "" };
  });
}

/** True if a tab shows this file, or one in this folder. */
export function isWithin(tab: Tab, agent: string, path: string): boolean {
  return tab.file?.agent === agent && (tab.file.path === path || tab.file.path.startsWith(`${path}/`));
}
