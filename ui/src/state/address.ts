/** The address of the page: the open thread, the panel, and the files on the canvas. A reload opens the same again. */

import type { AppState, Panel } from "./app";

export type Address = Pick<AppState, "thread" | "panel" | "files" | "file">;

export const PANELS: readonly Panel[] = [
  "canvas",
  "files",
  "terminal",
  "agent",
  "trace",
  "usage",
  "approvals",
  "replay",
  "evals",
  "cluster",
  "settings",
];
const MOST_FILES = 20; // an address may not be longer than browsers and messengers accept

export function readAddress(hash = location.hash): Address {
  const fields = new URLSearchParams(hash.slice(1));
  const panel = PANELS.find((one) => one === fields.get("panel")) ?? null;
  const files = fields.getAll("file").slice(0, MOST_FILES);
  return { thread: fields.get("thread") ?? "", panel, files, file: fields.get("show") ?? files[0] ?? "" };
}

/** The part of an address after the path. */
export function writeAddress({ thread, panel, files, file }: Address): string {
  const fields: [string, string][] = thread ? [["thread", thread]] : [];
  if (panel) fields.push(["panel", panel]);
  for (const path of files.slice(0, MOST_FILES)) fields.push(["file", path]);
  if (file && file !== files[0]) fields.push(["show", file]);
  return fields.length ? `#${new URLSearchParams(fields)}` : "";
}
