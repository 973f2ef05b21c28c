import { expect, it } from "vitest";

import { parseSpelling, applySpelling } from "./lineFormat";

it("gives every file back as it was", () => {
  for (const raw of [
    "",
    "a",
    "a\nb\n",
    "a\r\nb\r\n",
    "\uFEFFa,b\r\n1,2\r\n",
    "\uFEFFa\n",
    "a\r\nb\n",
    "a\rb\r",
    "a\r\n\rb\r\n",
    "\n\r\n",
  ]) {
    const { text, spelling } = parseSpelling(raw);
    expect(applySpelling(text, spelling)).toBe(raw);
  }
});

it("has lines as everywhere, where all of them end alike", () => {
  expect(parseSpelling("\uFEFFa\r\nb\r\n").text).toBe("a\nb\n");
  expect(parseSpelling("a\r\nb\n").text).toBe("a\r\nb\n");
});
