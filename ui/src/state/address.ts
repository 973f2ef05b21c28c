/** The address of the page: the open thread, the panels, and the files on the canvas. A reload opens the same again. */

import { badName } from "../canvas/names";
import type { AppState, Panel } from "./app";

export type Address = Pick<AppState, "thread" | "panel" | "beside" | "below" | "wide" | "files" | "file">;

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

/** Read an address. Values that are not valid are left out. */
export function readAddress(hash = location.hash): Address {
  const fields = new URLSearchParams(hash.slice(1));
  const named = (field: string) => PANELS.find((one) => one === fields.get(field)) ?? null;
  const [panel, beside, below] = [named("panel"), named("beside"), named("below")];
  const layout = {
    panel: panel ?? beside,
    beside: panel && beside !== panel ? beside : null,
    below: below !== panel && below !== beside ? below : null,
    wide: fields.get("wide") === "true" && (panel ?? beside ?? below) !== null,
  };
  const files = [...new Set(fields.getAll("file"))].filter((path) => !badName(path)).slice(0, MOST_FILES);
  const shown = fields.get("show") ?? "";
  return {
    thread: fields.get("thread") ?? "",
    ...layout,
    files,
    file: files.includes(shown) ? shown : (files[0] ?? ""),
  };
}

/** The part of an address after the path. */
export function writeAddress({ thread, panel, beside, below, wide, files, file }: Address): string {
  const fields: [string, string][] = thread ? [["thread", thread]] : [];
  for (const [name, one] of Object.entries({ panel, beside, below })) if (one) fields.push([name, one]);
  if (wide) fields.push(["wide", "true"]);
  for (const path of files.slice(0, MOST_FILES)) fields.push(["file", path]);
  if (file && file !== files[0]) fields.push(["show", file]);
  return fields.length ? `#${new URLSearchParams(fields)}` : "";
}
