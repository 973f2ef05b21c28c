import { expect, it } from "vitest";

import { formatAgo, groupByDay } from "./ago";

it("says how long ago something was", () => {
  expect([5, 130, 7_300].map((seconds) => formatAgo(10_000 - seconds, 10_000))).toEqual([
    "just now",
    "2 min ago",
    "2 h ago",
  ]);
  expect(formatAgo(20, 10)).toBe("just now"); // clocks differ
});

it("puts together what is of the same day, in the order it came in", () => {
  const now = new Date(2026, 4, 20, 12);
  const at = (hours: number) => ({ updated: now.getTime() / 1000 - hours * 3600 });
  const all = [at(1), at(11), at(20), at(60), at(24 * 30)];
  expect(groupByDay(all, now).map(([day, some]) => [day, some.length])).toEqual([
    ["Today", 2],
    ["Yesterday", 1],
    ["This week", 1],
    ["Earlier", 1],
  ]);
  expect(groupByDay([])).toEqual([]);
});
