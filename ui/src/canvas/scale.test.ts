import { expect, it } from "vitest";

import { formatBrief, labelStep, axisTicks } from "./scale";

it("puts round numbers on an axis", () => {
  expect(axisTicks(3, 97)).toEqual([0, 20, 40, 60, 80, 100]);
  expect(axisTicks(-0.3, 0.2)).toEqual([-0.3, -0.2, -0.1, 0, 0.1, 0.2]);
  expect(axisTicks(0, 0)).toEqual([0, 1]);
  expect(axisTicks(-8, -2)).toEqual([-8, -6, -4, -2, 0]);
});

it.each([
  [1e-9, 7e-9],
  [1, 1e14],
  [-5e8, 3],
])("has all values between its ends: %d to %d", (least, most) => {
  const all = axisTicks(least, most);
  expect(all[0]).toBeLessThanOrEqual(Math.min(0, least));
  expect(all.at(-1)).toBeGreaterThanOrEqual(most);
  expect(all.length).toBeLessThan(12);
});

it("writes numbers shortly", () => {
  expect([0, 1200, 12_000, 3_500_000, 0.25, -42_000, 2e-7].map(formatBrief)).toEqual([
    "0",
    "1200",
    "12k",
    "3.5M",
    "0.25",
    "-42k",
    "2.0e-7",
  ]);
});

it("leaves labels out where there are many", () => {
  expect([labelStep(5, 10), labelStep(100, 10), labelStep(0, 10)]).toEqual([1, 10, 1]);
});
