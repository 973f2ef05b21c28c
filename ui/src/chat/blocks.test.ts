import { expect, it } from "vitest";

import { settled } from "./blocks";

it("parts a text at its last empty line", () => {
  expect(settled("one\n\ntwo\n\nthr")).toEqual(["one\n\ntwo\n\n", "thr"]);
  expect(settled("one")).toEqual(["", "one"]);
  expect(settled("")).toEqual(["", ""]);
});

it("never parts fenced code, closed or not", () => {
  expect(settled("a\n\n```py\nx\n\ny")).toEqual(["a\n\n", "```py\nx\n\ny"]);
  expect(settled("```\nx\n\n```\n\nb")).toEqual(["```\nx\n\n```\n\n", "b"]);
  expect(settled("````\n```\n\nx")).toEqual(["", "````\n```\n\nx"]);
});

it("loses nothing wherever it is cut", () => {
  const text = "# a\n\n- b\n\n~~~\n\nc\n~~~\n\n|d|\n|-|\n\ne";
  for (let at = 0; at <= text.length; at++) expect(settled(text.slice(0, at)).join("")).toBe(text.slice(0, at));
});
