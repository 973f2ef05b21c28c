import { expect, it } from "vitest";

import { diff, readUnified } from "./diff";

const shown = (old: string, now: string) =>
  diff(old, now, 1).map(({ kind, text }) => ({ same: " ", gone: "-", new: "+", skipped: "…" })[kind] + text);

it("shows what went and what came, and a little around it", () => {
  expect(shown("a\nb\nc\nd\ne\n", "a\nb\nX\nd\ne\n")).toEqual(["…1", " b", "-c", "+X", " d", "…1"]);
  expect(shown("", "a\nb\n")).toEqual(["+a", "+b"]);
  expect(shown("a\nb\n", "")).toEqual(["-a", "-b"]);
  expect(shown("same\n", "same\n")).toEqual(["…1"]);
});

it("keeps lines that only moved apart", () => {
  expect(shown("one\ntwo\n", "zero\none\nhalf\ntwo\n")).toEqual(["+zero", " one", "+half", " two"]);
});

it("gives up on texts that are far too long to compare, and shows both", () => {
  const many = (word: string) => Array.from({ length: 2_100 }, (_, at) => `${word}${at}`).join("\n");
  const made = diff(many("a"), many("b"));
  expect([
    made.filter((line) => line.kind === "gone").length,
    made.filter((line) => line.kind === "new").length,
  ]).toEqual([2_100, 2_100]);
});

it("reads a unified diff, and counts the lines between its parts", () => {
  const text =
    "--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@\n same\n-old\n+new\n\\ No newline at end of file\n@@ -9 +9,0 @@\n-gone\n";
  const lines = readUnified(text).map(({ kind, text }) => `${kind} ${text}`);
  expect(lines).toEqual(["skipped 2", "same same", "gone old", "new new", "skipped 4", "gone gone"]);
  expect(readUnified("--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+all\n")).toEqual([{ kind: "new", text: "all" }]);
  expect(readUnified("10 bytes become nothing\n")).toEqual([{ kind: "same", text: "10 bytes become nothing" }]);
});
