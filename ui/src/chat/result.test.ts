import { expect, it } from "vitest";

import { gist, result } from "./result";

it("takes a command's outputs apart", () => {
  expect(result('{"stdout":"a\\n","stderr":"no","exit_code":2}')).toEqual({ text: "a\n", error: "no", exit: 2 });
});

it("lays data out and leaves text alone", () => {
  expect(result('{"a":[1]}').text).toBe('{\n  "a": [\n    1\n  ]\n}');
  for (const text of ["plain", "{half", "[not json", '"a string"', ""]) expect(result(text)).toEqual({ text, error: "", exit: null });
});

it("says in a few words what a call is about", () => {
  expect(gist({ timeout: 5, command: "make\n  test" })).toBe("make test");
  expect(gist({ todos: [1] })).toBe("[1]");
  expect(gist({})).toBe("");
  expect(gist({ path: "x".repeat(200) })).toHaveLength(80);
});
