/** What is done to files: begun, uploaded, renamed, deleted. */

import * as api from "../../api";
import { isWithin, moved, taken } from "../../canvas/keeping";
import { badName } from "../../canvas/names";
import { canvas, close, update } from "../../canvas/tabs";
import { attempt, notify } from "../../state/app";
import type { Upload } from "./dropped";
import { join, parent, type Row } from "./rows";

const MOST_BYTES = 40_000_000;

/** Put files into a folder, one after the other. What is there already stays, unless it is said otherwise. */
export async function upload(agent: string, folder: string, all: Upload[], tell: (progress: string) => void): Promise<number> {
  const wanted = all.map(({ path, file }) => ({ path: join(folder, path), file })).filter(fits);
  const there = (await attempt(() => taken(agent, wanted.map((one) => one.path)))) ?? [];
  const files = there.length && !confirm(overwriting(there)) ? wanted.filter((one) => !there.includes(one.path)) : wanted;
  let count = 0;
  for (const [at, { path, file }] of files.entries()) {
    tell(`Uploading ${file.name} (${at + 1} of ${files.length})…`);
    if (await attempt(() => api.files.upload(agent, path, file))) count++;
  }
  tell("");
  if (count) notify(count === 1 ? "Uploaded 1 file." : `Uploaded ${count} files.`);
  return count;
}

function fits({ file }: Upload): boolean {
  if (file.size <= MOST_BYTES) return true;
  notify(`${file.name} is larger than the upload limit of 40 MB.`, "error");
  return false;
}

const overwriting = (paths: string[]): string => (paths.length === 1 ? `${paths[0]!} already exists. Overwrite it?` : `${paths.length} of these files already exist. Overwrite them?`);

export async function rename(agent: string, row: Row, name: string): Promise<boolean> {
  const wrong = badName(name);
  if (wrong) {
    notify(wrong, "error");
    return false;
  }
  const target = join(parent(row.path), name.trim());
  if (target === row.path) return true;
  const done = await attempt(() => api.files.move(agent, row.path, target));
  if (done) moved(agent, row.path, target);
  return done !== undefined;
}

export async function remove(agent: string, row: Row): Promise<boolean> {
  const what = row.type === "dir" ? `the folder ${row.name} and everything in it` : row.name;
  if (!confirm(`Delete ${what} permanently?`)) return false;
  const done = await attempt(async () => {
    await api.files.remove(agent, row.path, row.type === "dir");
    return true;
  });
  if (done) forget(agent, row.path);
  return done ?? false;
}

/** The tabs of what is gone are closed; there is nothing to be asked about. */
function forget(agent: string, path: string): void {
  for (const tab of canvas.get().tabs.filter((one) => isWithin(one, agent, path))) {
    update(tab.id, { saved: tab.text });
    close(tab.id);
  }
}

/** Begin an empty file. */
export async function begin(agent: string, path: string): Promise<boolean> {
  const wrong = badName(path);
  if (wrong) {
    notify(wrong, "error");
    return false;
  }
  const done = await attempt(async () => {
    if ((await taken(agent, [path])).length) throw new Error(`${path} already exists; choose another name.`);
    return api.files.write(agent, { path, content: "", encoding: "utf-8" });
  });
  return done !== undefined;
}
