import { expect, it } from "vitest";

import { count, dollars, plural, seconds, short } from "./amounts";

it("says amounts as people do", () => {
  expect([12, 9_999, 12_340, 250_000, 3_400_000].map(short)).toEqual(["12", "9,999", "12.3k", "250k", "3.4M"]);
  expect([0, 0.00042, 0.5, 12].map(dollars)).toEqual(["$0", "$0.00042", "$0.50", "$12.00"]);
  expect([30, 300].map(seconds)).toEqual(["30 s", "5 min"]);
  expect([plural(1, "call"), plural(2, "call"), plural(0, "reply", "replies")]).toEqual(["1 call", "2 calls", "0 replies"]);
  expect(count(1234.6)).toBe("1,235");
});
