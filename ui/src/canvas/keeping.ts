/** Files and tabs: read into one, looked at again, and written from one, with nothing lost on either side. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, notify, patch } from "../state/app";
import { bytesKind, kindOf, pictureType, viewsOf } from "./kind";
import { badName } from "./names";
import { plain, type Spelling, spelled } from "./spelling";
import { canvas, fitting, isChanged, type Place, remember, stepped, type Tab, tabOf, update } from "./tabs";

const LIGHT_BYTES = 300_000; // what is larger is read again only when its size is another

export const idOf = ({ agent, path }: Place): string => JSON.stringify([agent, path]);

// -- reading ------------------------------------------------------------------------------------------------------

interface Read {
  text: string;
  spelling: Spelling;
  size: number;
  bytes: Blob | null;
  cut: boolean;
}

export async function load(id: string): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  try {
    const read = await reading(tab);
    update(id, (old) => shown(old, read));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patch({ me: null });
    update(id, { state: "failed", problem: error instanceof Error ? error.message : String(error) });
  }
}

const reading = (tab: Tab): Promise<Read> => (bytesKind(tab.name) ? readBytes(tab.file!) : readText(tab.file!));

async function readBytes({ agent, path, thread }: Place): Promise<Read> {
  const bytes = await api.files.bytes(agent, path, thread);
  return { ...plain(""), size: bytes.size, bytes: bytes.slice(0, bytes.size, pictureType(path) || "application/pdf"), cut: false };
}

async function readText({ agent, path, thread }: Place): Promise<Read> {
  const { content, encoding, truncated, size } = await api.files.read(agent, path, thread);
  if (encoding === "utf-8") return { ...plain(content), size, bytes: null, cut: truncated };
  return { ...plain(""), size, bytes: new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))]), cut: truncated };
}

/** A tab with what was read; the first time, in the way such things are looked at first. */
function shown(tab: Tab, read: Read): Tab {
  const kind = bytesKind(tab.name) ?? (read.bytes ? "binary" : kindOf(tab.name, read.text));
  const now = { ...tab, ...read, kind, saved: read.text, state: "ready", problem: "", gone: false } as const;
  if (tab.state !== "ready") return { ...now, view: viewsOf(kind)[0]! };
  const view = fitting(tab.view, kind);
  if (read.bytes) return { ...now, view };
  return { ...now, view, versions: remember(tab, tab.saved), theirs: null, past: stepped(tab), future: [], typing: false };
}

/** Look whether the file has become another; what was changed here is not lost by that. `surely`: whatever its size. */
export async function refresh(id: string, surely = false): Promise<void> {
  const tab = tabOf(id);
  if (!tab?.file) return;
  if (tab.state !== "ready") return load(id);
  try {
    if (!surely && tab.size > LIGHT_BYTES && (await api.files.size(tab.file.agent, tab.file.path, tab.file.thread)) === tab.size) return;
    const now = await reading(tab);
    const same = now.bytes && tab.bytes ? await isSame(now.bytes, tab.bytes) : false;
    update(id, (old) => (same ? { ...old, gone: false } : met({ ...old, gone: false }, now)));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) update(id, { gone: true }); // whoever is away now comes back later
  }
}

async function isSame(a: Blob, b: Blob): Promise<boolean> {
  if (a.size !== b.size) return false;
  const [one, other] = await Promise.all([a.arrayBuffer(), b.arrayBuffer()]);
  const known = new Uint8Array(other);
  return new Uint8Array(one).every((byte, at) => byte === known[at]);
}

/** A tab that meets its file as it is now. */
function met(tab: Tab, now: Read): Tab {
  if (now.bytes) return isChanged(tab) ? tab : shown(tab, now);
  const known = { ...tab, spelling: now.spelling, size: now.size };
  if (!tab.bytes && (now.text === tab.saved || now.text === tab.theirs)) return known;
  if (now.text === tab.text && !tab.bytes) return { ...known, saved: now.text, theirs: null, versions: remember(tab, tab.saved) };
  return isChanged(tab) ? { ...known, theirs: now.text } : shown(tab, now);
}

// -- writing ------------------------------------------------------------------------------------------------------

/** Save a tab into its file; not over what somebody else wrote there meanwhile. */
export async function save(id: string): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab?.file || tab.bytes || tab.cut || tab.state !== "ready") return false;
  const { agent, path } = tab.file;
  const done = await attempt(async () => {
    const now = await readText(tab.file!).catch(missing);
    if (now && !now.bytes && now.text !== tab.saved && now.text !== tab.text) {
      update(id, { theirs: now.text });
      notify(`${tab.name} was changed elsewhere; choose which version to keep.`, "error");
      return false;
    }
    const { bytes_written } = await api.files.write(agent, { path, content: spelled(tab.text, tab.spelling), encoding: "utf-8" });
    update(id, (old) => written(old, tab.text, bytes_written));
    return true;
  });
  return done ?? false;
}

function written(tab: Tab, text: string, size: number): Tab {
  const kind = kindOf(tab.name, text);
  const before = tab.theirs ?? tab.saved;
  return { ...tab, saved: text, size, theirs: null, gone: false, versions: before === text ? tab.versions : remember(tab, before), kind, view: fitting(tab.view, kind), typing: false };
}

function missing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null; // it is written anew
  throw error;
}

/** Save a text that is in no file, or a file under another name. What is there already is asked about first. */
export async function saveAs(id: string, path: string): Promise<boolean> {
  const tab = tabOf(id);
  if (!tab) return false;
  if (path === tab.file?.path) return save(id);
  const wrong = badName(path);
  if (wrong) return notify(wrong, "error"), false;
  const agent = tab.file?.agent ?? app.get().agent;
  const done = await attempt(async () => {
    if ((await taken(agent, [path])).length && !confirm(`${path} already exists. Overwrite it?`)) return false;
    const { bytes_written } = await api.files.write(agent, { path, content: spelled(tab.text, tab.spelling), encoding: "utf-8" });
    become(tabOf(id) ?? tab, tab.text, { agent, path, thread: tab.file?.thread ?? app.get().thread }, bytes_written);
    return true;
  });
  return done ?? false;
}

/** A tab is of another file now; one that showed that file is the same as this one. */
function become(tab: Tab, saved: string, file: Place, size: number): void {
  const made = { ...placed(tab, file), saved, size, gone: false, theirs: null };
  canvas.set((old) => ({ tabs: old.tabs.filter((one) => one.id !== made.id || one.id === tab.id).map((one) => (one.id === tab.id ? made : one)), active: made.id }));
}

/** A tab at another place, where it may be something else by its name. */
function placed(tab: Tab, file: Place): Tab {
  const name = file.path.split("/").at(-1)!;
  const kind = tab.bytes ? tab.kind : kindOf(name, tab.text);
  return { ...tab, id: idOf(file), file, name, kind, view: kind === tab.kind ? tab.view : viewsOf(kind)[0]! };
}

/** Which of these paths are taken. */
export async function taken(agent: string, paths: string[]): Promise<string[]> {
  const folderOf = (path: string) => (path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : ".");
  const found = new Set<string>();
  for (const folder of new Set(paths.map(folderOf))) {
    const listing = await api.files.list(agent, folder).catch(missing);
    for (const { name } of listing?.entries ?? []) found.add(folder === "." ? name : `${folder}/${name}`);
  }
  return paths.filter((path) => found.has(path));
}

/** Take what the file has become, or keep what stands here. */
export function settle(id: string, choice: "theirs" | "mine"): void {
  update(id, (tab) => {
    if (tab.theirs === null) return tab;
    if (choice === "mine") return { ...tab, saved: tab.theirs, theirs: null, versions: remember(tab, tab.theirs) };
    return { ...tab, text: tab.theirs, saved: tab.theirs, theirs: null, versions: remember(tab, tab.saved), past: stepped(tab), future: [], typing: false };
  });
}

/** A file was given another name, or another place. */
export function moved(agent: string, source: string, target: string): void {
  canvas.set((old) => {
    const tabs = old.tabs.map((tab) => (isWithin(tab, agent, source) ? placed(tab, { ...tab.file!, path: target + tab.file!.path.slice(source.length) }) : tab));
    const at = old.tabs.findIndex((tab) => tab.id === old.active);
    return { tabs, active: tabs[at]?.id ?? "" };
  });
}

/** Whether a tab shows this file, or one of this folder. */
export function isWithin(tab: Tab, agent: string, path: string): boolean {
  return tab.file?.agent === agent && (tab.file.path === path || tab.file.path.startsWith(`${path}/`));
}
