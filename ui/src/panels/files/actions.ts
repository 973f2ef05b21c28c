/** File actions: create, upload, rename, delete. */

import * as api from "../../api";
import { isWithin, renameTabs, findExisting } from "../../canvas/tabFiles";
import { badName } from "../../canvas/names";
import { canvas, closeTab, updateTab } from "../../canvas/tabs";
import { formatPlural } from "../../parts/amounts";
import { tryRequest, notify } from "../../state/app";
import type { Upload } from "./droppedFiles";
import { joinPath, parentPath, type Row } from "./rows";

const MOST_BYTES = 40_000_000;

/** Upload files into a folder, one after the other. Existing ones are kept unless confirmed. */
export async function uploadFiles(
  agent: string,
  folder: string,
  all: Upload[],
  tell: (progress: string) => void,
): Promise<number> {
  const wanted = all.map(({ path, file }) => ({ path: joinPath(folder, path), file })).filter(isUploadable);
  const there =
    (await tryRequest(() =>
      findExisting(
        agent,
        wanted.map((one) => one.path),
      ),
    )) ?? [];
  const files =
    there.length && !confirm(overwriteQuestion(there)) ? wanted.filter((one) => !there.includes(one.path)) : wanted;
  let count = 0;
  for (const [at, { path, file }] of files.entries()) {
    tell(`Uploading ${file.name} (${at + 1} of ${files.length})…`);
    if (await tryRequest(() => api.files.upload(agent, path, file))) count++;
  }
  tell("");
  if (count) notify(`Uploaded ${formatPlural(count, "file")}.`);
  return count;
}

function isUploadable({ file }: Upload): boolean {
  if (file.size <= MOST_BYTES) return true;
  notify(`${file.name} is larger than the upload limit of 40 MB.`, "error");
  return false;
}

const overwriteQuestion = (paths: string[]): string =>
  paths.length === 1
    ? `${paths[0]!} already exists. Overwrite it?`
    : `${paths.length} of these files already exist. Overwrite them?`;

export async function renameEntry(agent: string, row: Row, name: string): Promise<boolean> {
  const wrong = badName(name);
  if (wrong) {
    notify(wrong, "error");
    return false;
  }
  const target = joinPath(parentPath(row.path), name.trim());
  if (target === row.path) return true;
  const done = await tryRequest(() => api.files.move(agent, row.path, target));
  if (done) renameTabs(agent, row.path, target);
  return done !== undefined;
}

export async function removeEntry(agent: string, row: Row): Promise<boolean> {
  const what = row.type === "dir" ? `the folder ${row.name} and everything in it` : row.name;
  if (!confirm(`Delete ${what} permanently?`)) return false;
  const done = await tryRequest(async () => {
    await api.files.remove(agent, row.path, row.type === "dir");
    return true;
  });
  if (done) closeTabs(agent, row.path);
  return done ?? false;
}

/** Close the tabs of deleted files without a question. */
function closeTabs(agent: string, path: string): void {
  for (const tab of canvas.get().tabs.filter((one) => isWithin(one, agent, path))) {
    updateTab(tab.id, { saved: tab.text });
    closeTab(tab.id);
  }
}

/** Begin an empty file. */
export async function createFile(agent: string, path: string): Promise<boolean> {
  const wrong = badName(path);
  if (wrong) {
    notify(wrong, "error");
    return false;
  }
  const done = await tryRequest(async () => {
    if ((await findExisting(agent, [path])).length) throw new Error(`${path} already exists; choose another name.`);
    return api.files.write(agent, { path, content: "", encoding: "utf-8" });
  });
  return done !== undefined;
}
