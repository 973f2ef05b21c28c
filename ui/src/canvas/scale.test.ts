import { expect, it } from "vitest";

import { brief, every, ticks } from "./scale";

it("puts round numbers on an axis", () => {
  expect(ticks(3, 97)).toEqual([0, 20, 40, 60, 80, 100]);
  expect(ticks(-0.3, 0.2)).toEqual([-0.3, -0.2, -0.1, 0, 0.1, 0.2]);
  expect(ticks(0, 0)).toEqual([0, 1]);
  expect(ticks(-8, -2)).toEqual([-8, -6, -4, -2, 0]);
});

it.each([[1e-9, 7e-9], [1, 1e14], [-5e8, 3]])("has all values between its ends: %d to %d", (least, most) => {
  const all = ticks(least, most);
  expect(all[0]).toBeLessThanOrEqual(Math.min(0, least));
  expect(all.at(-1)).toBeGreaterThanOrEqual(most);
  expect(all.length).toBeLessThan(12);
});

it("writes numbers shortly", () => {
  expect([0, 1200, 12_000, 3_500_000, 0.25, -42_000, 2e-7].map(brief)).toEqual(["0", "1200", "12k", "3.5M", "0.25", "-42k", "2.0e-7"]);
});

it("leaves labels out where there are many", () => {
  expect([every(5, 10), every(100, 10), every(0, 10)]).toEqual([1, 10, 1]);
});
