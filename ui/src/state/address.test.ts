import { expect, it } from "vitest";

import { type Address, readAddress, writeAddress } from "./address";
import { NO_PANELS } from "./layout";

const NOTHING: Address = { ...NO_PANELS, thread: "", files: [], file: "" };

it.each([
  NOTHING,
  { ...NOTHING, thread: "th_1", panel: "canvas" as const, files: ["a b.md", "out/c&d.csv"], file: "out/c&d.csv" },
  { ...NOTHING, thread: "th_1", files: ["a.md"], file: "a.md" },
  { ...NOTHING, panel: "canvas" as const, beside: "files" as const, below: "terminal" as const, wide: true },
])("an address is read as it was written", (address) => expect(readAddress(writeAddress(address))).toEqual(address));

it("an address without a thread is empty", () => expect(writeAddress(NOTHING)).toBe(""));

it.each([
  ["an unknown panel", "#panel=cellar&beside=roof&below=&wide=true", NO_PANELS],
  ["a panel twice", "#panel=files&beside=files&below=files", { ...NO_PANELS, panel: "files" }],
  ["a side panel alone", "#beside=files", { ...NO_PANELS, panel: "files" }],
  ["an invalid width", "#panel=files&wide=1e9", { ...NO_PANELS, panel: "files" }],
  ["a file outside", "#file=../../etc/passwd&file=/etc/passwd&file=&show=nowhere", { files: [], file: "" }],
  ["a file twice", "#file=a.md&file=a.md", { files: ["a.md"], file: "a.md" }],
])("%s in an address is left out", (_, hash, expected) => expect(readAddress(hash)).toMatchObject(expected));
