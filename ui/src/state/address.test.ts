import { expect, it } from "vitest";

import { readAddress, writeAddress } from "./address";

it.each([
  { thread: "", panel: null, files: [], file: "" },
  { thread: "th_1", panel: "canvas" as const, files: ["a b.md", "out/c&d.csv"], file: "out/c&d.csv" },
  { thread: "th_1", panel: null, files: ["a.md"], file: "a.md" },
])("an address is read as it was written", (address) => expect(readAddress(writeAddress(address))).toEqual(address));

it("an address without a thread is empty", () =>
  expect(writeAddress({ thread: "", panel: null, files: [], file: "" })).toBe(""));

it("an unknown panel is no panel", () => expect(readAddress("#thread=x&panel=cellar").panel).toBeNull());
