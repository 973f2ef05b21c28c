/** What is done to files: uploaded, renamed, deleted. */

import * as api from "../api";
import { canvas, close, moved, update } from "../canvas/tabs";
import { attempt, notify } from "../state/app";
import { badName, join, nameOf, parent, type Row } from "./filesTree";

const MOST_BYTES = 40_000_000;

export async function upload(agent: string, folder: string, files: Iterable<File>): Promise<number> {
  let count = 0;
  for (const file of files) {
    if (file.size > MOST_BYTES) {
      notify(`${file.name} is larger than 40 MB, which is the most that can be uploaded.`, "error");
      continue;
    }
    const path = join(folder, file.webkitRelativePath || file.name);
    if (await attempt(() => api.files.upload(agent, path, file))) count++;
  }
  if (count) notify(count === 1 ? "Uploaded 1 file." : `Uploaded ${count} files.`);
  return count;
}

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
  if (!confirm(`Delete ${what} for good?`)) return false;
  const done = await attempt(async () => {
    await api.files.remove(agent, row.path, row.type === "dir");
    return true;
  });
  if (done) forget(agent, row.path);
  return done ?? false;
}

/** The tabs of what is gone are closed; there is nothing to be asked about. */
function forget(agent: string, path: string): void {
  for (const tab of canvas.get().tabs) {
    if (tab.file?.agent !== agent || !(tab.file.path === path || tab.file.path.startsWith(`${path}/`))) continue;
    update(tab.id, { saved: tab.text });
    close(tab.id);
  }
}

export async function begin(agent: string, path: string): Promise<boolean> {
  const wrong = badName(path);
  if (wrong) {
    notify(wrong, "error");
    return false;
  }
  const there = await api.files.list(agent, parent(path)).catch(() => null);
  if (there?.entries.some((entry) => entry.name === nameOf(path))) {
    notify(`There is already something called ${path}.`, "error");
    return false;
  }
  return (await attempt(() => api.files.write(agent, { path, content: "", encoding: "utf-8" }))) !== undefined;
}
