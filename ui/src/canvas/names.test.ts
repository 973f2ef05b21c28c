import { expect, it } from "vitest";

import { badName, legible } from "./names";

it("hides nothing of a name", () => {
  expect([legible("a b.txt"), legible("\u202egnp.exe"), legible("a\nb"), legible("שלום.txt")]).toEqual(["a b.txt", "\ufffdgnp.exe", "a\ufffdb", "שלום.txt"]);
});

it("says what is wrong with a name", () => {
  expect(badName("a..b.txt")).toBe("");
  expect(badName("x/y.txt")).toBe("");
  for (const name of ["", " ", "a//b", "../a", "/a"]) expect(badName(name)).not.toBe("");
});
