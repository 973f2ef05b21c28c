import { expect, it } from "vitest";

import { columnLetters, createSplitter, isEntangled, readFence, readLongTable, splitBlocks } from "./blocks";

const LONG = `${"words ".repeat(200)}\n\n`;
const TEXTS = [
  "# a\n\n- b\n\n~~~\n\nc\n~~~\n\n|d|\n|-|\n\ne",
  `${LONG}- one\n\n- two\n\n  more of two\n\n${LONG}1. x\n\n2. y\n\n${LONG}end`,
  `${LONG}\`\`\`py\nx\n\n${LONG}y\n\`\`\`\nafter\n\n| a |\n|---|\n| 1 |\n\nend`,
  `${LONG}$$\na\n\n${LONG}b\n$$\n\n${LONG}\\[\nc\n\n${LONG}\\]\n\n${LONG}d`,
  `${LONG}<pre>\n\n${LONG}# not a heading\n\n${LONG}</pre>\n\n${LONG}`,
];

it("splits long texts, code and tables, and nothing that belongs together", () => {
  expect(splitBlocks(`${LONG}two\n\nthree`)).toEqual([LONG, "two\n\nthree"]);
  expect(splitBlocks("a\n```py\nx\n\ny\n```\nb")).toEqual(["a\n", "```py\nx\n\ny\n```\n", "b"]);
  expect(splitBlocks("````\n```\n\nx")).toEqual(["````\n```\n\nx"]);
  expect(splitBlocks("a\n\n| b |\n|---|\n| 1 |\n\nc")).toEqual(["a\n\n", "| b |\n|---|\n| 1 |\n\n", "c"]);
  for (const together of [`- ${LONG}- b`, `1. ${LONG}   more`, `$$\n${LONG}$$`, `\\[\n${LONG}\\]`, `<!--\n${LONG}-->`])
    expect(splitBlocks(together)).toEqual([together]);
  expect(splitBlocks("")).toEqual([]);
});

it.each(TEXTS)("loses nothing wherever a text is cut, and finds the same when it grows", (text) => {
  const grow = createSplitter();
  for (let at = 0; at <= text.length; at += at < 40 ? 1 : 7) {
    const some = text.slice(0, at);
    expect(splitBlocks(some).join("")).toBe(some);
    expect(grow(some)).toEqual(splitBlocks(some));
  }
  expect(grow("another text")).toEqual(["another text"]);
});

it("knows definitions that other parts may need", () => {
  expect(["see [a]\n\n[a]: b", "note[^1]\n\n[^1]: c", "[a](b): c"].map(isEntangled)).toEqual([true, true, false]);
});

it("reads code, complete or not", () => {
  expect(readFence("```py x\na\n\nb\n```\n")).toEqual({ word: "py", text: "a\n\nb", closed: true });
  expect(readFence("~~~\na")).toEqual({ word: "", text: "a", closed: false });
  expect([readFence("a"), readFence("```a``` b"), readFence("```\na\n```\nb")]).toEqual([null, null, null]);
});

it("reads long tables some rows at a time", () => {
  const rows = Array.from({ length: 60 }, (_, at) => `| ${at} |`);
  const found = readLongTable(`| a |\n|---|\n${rows.join("\n")}\n| 60`)!;
  expect(found.head).toBe("| a |\n|---|\n");
  expect(found.rows.map((some) => some.split("\n").length)).toEqual([25, 25, 11]);
  expect(found.rows.join("\n").split("\n").slice(0, 60)).toEqual(rows);
  expect(readLongTable("| a |\n|---|\n| 1 |")).toBeNull();
  expect(readLongTable(`| a |\n|---|\n${rows.join("\n")}\n# b\n| c |`)).toBeNull();
});

it("finds the width of the columns of a table", () => {
  expect(
    columnLetters("| id | a name |\n|---|:--|\n| 1 | **bold** [x](https://example.com) |\n| 2 \\| 3 | `b` | c |"),
  ).toEqual([8, 9]);
  expect(columnLetters("| a |\n|---|\n| `value_10` |")).toEqual([11]);
  expect(columnLetters(`|${"a".repeat(90)}|\n|-|\n`)).toEqual([40]);
});
