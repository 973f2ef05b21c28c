import { expect, it } from "vitest";

import { formatBytes, joinPath, nameOf, parentPath, rowsOf, isSameFolder } from "./rows";

const entry = (name: string, type: "file" | "dir" = "file", size = 1) => ({ name, type, size });
const folder = (...entries: ReturnType<typeof entry>[]) => ({ entries, truncated: false });

it("shows folders before files, and what is in those that are open", () => {
  const folders = {
    ".": folder(entry("b10.txt"), entry("b9.txt"), entry("src", "dir"), entry("docs", "dir")),
    src: folder(entry("a.py")),
    docs: folder(entry("x.md")),
  };
  expect(rowsOf(folders, new Set(["src"])).map((row) => [row.path, row.depth, row.open])).toEqual([
    ["docs", 1, false],
    ["src", 1, true],
    ["src/a.py", 2, null],
    ["b9.txt", 1, null],
    ["b10.txt", 1, null],
  ]);
});

it("is drawn again only when something is another", () => {
  expect(isSameFolder(undefined, folder())).toBe(false);
  expect(isSameFolder(folder(entry("a")), folder(entry("a")))).toBe(true);
  expect(isSameFolder(folder(entry("a")), folder(entry("a", "file", 2)))).toBe(false);
  expect(isSameFolder(folder(entry("a")), folder(entry("a"), entry("b")))).toBe(false);
});

it("puts paths together and takes them apart", () => {
  expect([joinPath(".", "a"), joinPath("x/y", "a"), parentPath("x/y/a"), parentPath("a"), nameOf("x/a..b")]).toEqual([
    "a",
    "x/y/a",
    "x/y",
    ".",
    "a..b",
  ]);
});

it("says sizes as people do", () => {
  expect([0, 999, 1234, 5_600_000, 2e9].map(formatBytes)).toEqual(["0 B", "999 B", "1.23 kB", "5.6 MB", "2 GB"]);
});
