import { expect, it } from "vitest";

import { formatCount, formatDollars, formatPlural, formatSeconds, formatShort } from "./amounts";

it("says amounts as people do", () => {
  expect([12, 9_999, 12_340, 250_000, 3_400_000].map(formatShort)).toEqual(["12", "9,999", "12.3k", "250k", "3.4M"]);
  expect([0, 0.00042, 0.5, 12].map(formatDollars)).toEqual(["$0", "$0.00042", "$0.50", "$12.00"]);
  expect([30, 300].map(formatSeconds)).toEqual(["30 s", "5 min"]);
  expect([formatPlural(1, "call"), formatPlural(2, "call"), formatPlural(0, "reply", "replies")]).toEqual([
    "1 call",
    "2 calls",
    "0 replies",
  ]);
  expect(formatCount(1234.6)).toBe("1,235");
});
