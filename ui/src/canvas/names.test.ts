import { expect, it } from "vitest";

import { badName, showInvisible } from "./names";

it("hides nothing of a name", () => {
  expect([
    showInvisible("a b.txt"),
    showInvisible("\u202egnp.exe"),
    showInvisible("a\nb"),
    showInvisible("שלום.txt"),
  ]).toEqual(["a b.txt", "\ufffdgnp.exe", "a\ufffdb", "שלום.txt"]);
});

it("says what is wrong with a name", () => {
  expect(badName("a..b.txt")).toBe("");
  expect(badName("x/y.txt")).toBe("");
  for (const name of ["", " ", "a//b", "../a", "/a"]) expect(badName(name)).not.toBe("");
});
