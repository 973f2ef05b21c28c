/** A folder of the workspace as a tree: which folders are open, and the rows that are seen. */

import type { FileListing } from "../../api";

export type Entry = FileListing["entries"][number];

export interface Folder {
  entries: Entry[];
  truncated: boolean;
}

export interface Row {
  path: string;
  name: string;
  type: Entry["type"];
  size: number;
  depth: number; // 1 is the top
  open: boolean | null; // null: it is no folder
}

export const ROOT = ".";

export const joinPath = (folder: string, name: string): string => (folder === ROOT ? name : `${folder}/${name}`);

export const parentPath = (path: string): string => (path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : ROOT);

export const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** The rows of the tree from top to bottom: folders before files, each by its name. */
export function rowsOf(folders: Record<string, Folder>, open: ReadonlySet<string>): Row[] {
  const rows: Row[] = [];
  const visit = (folder: string, depth: number) => {
    for (const { name, type, size } of sortEntries(folders[folder]?.entries ?? [])) {
      const path = joinPath(folder, name);
      const isOpen = type === "dir" ? open.has(path) : null;
      rows.push({ path, name, type, size, depth, open: isOpen });
      if (isOpen) visit(path, depth + 1);
    }
  };
  visit(ROOT, 1);
  return rows;
}

function sortEntries(entries: Entry[]): Entry[] {
  const order = (entry: Entry) => (entry.type === "dir" ? 0 : 1);
  return [...entries].sort((a, b) => order(a) - order(b) || a.name.localeCompare(b.name, undefined, { numeric: true }));
}

/** True if two listings are equal, to avoid a redraw. */
export function isSameFolder(a: Folder | undefined, b: Folder): boolean {
  return (
    a !== undefined &&
    a.truncated === b.truncated &&
    a.entries.length === b.entries.length &&
    a.entries.every(
      (one, at) =>
        one.name === b.entries[at]!.name && one.size === b.entries[at]!.size && one.type === b.entries[at]!.type,
    )
  );
}

export function formatBytes(size: number): string {
  if (size < 1000) return `${size} B`;
  for (const [unit, name] of [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ] as const)
    if (size >= unit) return `${Number((size / unit).toPrecision(3))} ${name}`;
  return `${size} B`;
}
