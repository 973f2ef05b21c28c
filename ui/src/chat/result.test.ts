import { expect, it } from "vitest";

import { summarizeArguments, formatResult } from "./result";

it("takes a command's outputs apart", () => {
  expect(formatResult('{"stdout":"a\\n","stderr":"no","exit_code":2}')).toEqual({
    text: "a\n",
    error: "no",
    exit: 2,
    note: "",
  });
});

it("lays data out and leaves text alone", () => {
  expect(formatResult('{"a":[1]}').text).toBe('{\n  "a": [\n    1\n  ]\n}');
  for (const text of ["plain", "{half", "[not json", '"a string"', ""])
    expect(formatResult(text)).toEqual({ text, error: "", exit: null, note: "" });
});

it("says in a few words what a call is about", () => {
  expect(summarizeArguments({ timeout: 5, command: "make\n  test" })).toBe("make test");
  expect(summarizeArguments({ todos: [1] })).toBe("[1]");
  expect(summarizeArguments({})).toBe("");
  expect(summarizeArguments({ path: "x".repeat(200) })).toHaveLength(80);
});
