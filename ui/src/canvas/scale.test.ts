import { expect, it } from "vitest";

import { formatBrief } from "./scale";

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
