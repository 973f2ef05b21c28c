import { expect, it } from "vitest";

import type { UsageRow } from "../../api";
import { sumBy, listDays, OTHERS, periodOf, stackByDay } from "./sums";

const row = (day: string, agent: string, model: string, tokens: number, cost = 0): UsageRow => ({
  user_id: "u", user: "ada", day, agent, model, runs: 1, questions: 1, unpriced: 0, input_tokens: tokens - 1, output_tokens: 1, cached_tokens: 0, reasoning_tokens: 0, cache_write_tokens: 0, cost,
}); // prettier-ignore

const ROWS = [row("2026-03-01", "a", "m1", 10, 2), row("2026-03-03", "a", "m2", 30), row("2026-03-03", "b", "m1", 5)];

it("adds up by whatever is asked for, the most first", () => {
  expect(sumBy(ROWS, "model", "tokens")).toEqual([
    ["m2", 30],
    ["m1", 15],
  ]);
  expect(sumBy(ROWS, "agent", "runs")).toEqual([
    ["a", 2],
    ["b", 1],
  ]);
  expect(sumBy(ROWS, "model", "cost")).toEqual([["m1", 2]]);
});

it("has every day, and puts those who used least together", () => {
  const all = listDays("2026-02-28", "2026-03-03");
  expect(all).toEqual(["2026-02-28", "2026-03-01", "2026-03-02", "2026-03-03"]);
  expect(stackByDay(ROWS, all, "model", "tokens")).toEqual({
    days: all,
    names: ["m2", "m1"],
    values: [
      [0, 0],
      [0, 10],
      [0, 0],
      [30, 5],
    ],
  });
  const many = Array.from({ length: 9 }, (_, at) => row("2026-03-01", `a${at}`, "m", 10 + at));
  const { names, values } = stackByDay(many, ["2026-03-01"], "agent", "tokens");
  expect(names).toEqual(["a8", "a7", "a6", "a5", "a4", OTHERS]);
  expect(values).toEqual([[18, 17, 16, 15, 14, 10 + 11 + 12 + 13]]);
});

it("ends a period today", () => {
  expect(periodOf(7, Date.parse("2026-03-03T10:00:00Z"))).toEqual({ since: "2026-02-25", until: "2026-03-03" });
});
