import { expect, it } from "vitest";

import { splitSettled } from "./blocks";

it("parts a text at its last empty line", () => {
  expect(splitSettled("one\n\ntwo\n\nthr")).toEqual(["one\n\ntwo\n\n", "thr"]);
  expect(splitSettled("one")).toEqual(["", "one"]);
  expect(splitSettled("")).toEqual(["", ""]);
});

it("never parts fenced code, closed or not", () => {
  expect(splitSettled("a\n\n```py\nx\n\ny")).toEqual(["a\n\n", "```py\nx\n\ny"]);
  expect(splitSettled("```\nx\n\n```\n\nb")).toEqual(["```\nx\n\n```\n\n", "b"]);
  expect(splitSettled("````\n```\n\nx")).toEqual(["", "````\n```\n\nx"]);
});

it("loses nothing wherever it is cut", () => {
  const text = "# a\n\n- b\n\n~~~\n\nc\n~~~\n\n|d|\n|-|\n\ne";
  for (let at = 0; at <= text.length; at++) expect(splitSettled(text.slice(0, at)).join("")).toBe(text.slice(0, at));
});
