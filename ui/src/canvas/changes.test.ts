import { expect, it } from "vitest";

import { toUserItem, EMPTY, type Reply } from "../state/fold";
import { answerTo, firstBlock, replacePart } from "./changes";

it.each([
  ["Here:\n\n```python\nx = 2\n```\nDone.", "x = 2"],
  ["````\na\n```\nb\n```\n````", "a\n```\nb\n```"],
  ["```\n```", ""],
  ["no code", null],
  ["```\nnever closed", null],
])("%j has the block %j", (answer, block) => expect(firstBlock(answer)).toBe(block));

it("replaces a part where it was, or where it is now", () => {
  const part = { tab: "t", text: "b\n", from: 2 };
  expect(replacePart("a\nb\nc\n", part, "B\n")).toBe("a\nB\nc\n");
  expect(replacePart("new\na\nb\nc\n", part, "B")).toBe("new\na\nB\nc\n");
  expect(replacePart("b\na\nb\n", { ...part, from: 9 }, "B")).toBeNull();
  expect(replacePart("a\nc\n", part, "B")).toBeNull();
});

it("takes the replies to a message", () => {
  const reply = (text: string): Reply => ({ kind: "reply", key: text, seq: 1, run: "r", text, reasoning: "", calls: [], open: false, cut: false }); // prettier-ignore
  const items = [toUserItem(1, "a"), reply("old"), toUserItem(2, "a"), reply("new"), reply("more")];
  expect(answerTo({ ...EMPTY, items }, "a")).toBe("new\n\nmore");
  expect(answerTo({ ...EMPTY, items }, "never sent")).toBe("");
});
