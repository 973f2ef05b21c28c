import { expect, it } from "vitest";

import { formatValue } from "./values";

it("formats each kind of value", () => {
  expect(["a", 2, true, { a: [1] }].map((value) => formatValue(value))).toEqual(["a", "2", "true", '{"a":[1]}']);
  expect([formatValue(null), formatValue(undefined, "none"), formatValue("", "none")]).toEqual(["", "none", ""]);
});
