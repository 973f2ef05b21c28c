import { expect, it } from "vitest";

import { findNews } from "./notifications";

const row = (last: number, more: object = {}) => ({
  id: "th_1",
  title: "t",
  agent_id: "coder",
  meta: {},
  created: 0,
  updated: 0,
  last,
  ...more,
});
const before = (last: number, run = "", asking = 0) => ({ last, run, asking });

it.each([
  ["a question", before(1, "run_1"), row(5, { run_id: "run_1", asking: 1 }), "asks"],
  ["the same question", before(5, "run_1", 1), row(5, { run_id: "run_1", asking: 1 }), ""],
  ["a run that continues", before(1, "run_1"), row(5, { run_id: "run_1" }), ""],
  ["the end of a run", before(5, "run_1"), row(9), "ended"],
  ["the end of a run that was not seen", before(5), row(9), "ended"],
  ["the end of the first run of a thread", undefined, row(9), "ended"],
  ["a lease that is released", before(9), row(9), ""],
  ["a queued message", before(5), row(6, { queued: 1 }), ""],
  ["another title", before(9), row(9, { title: "new" }), ""],
] as const)("knows %s", (_, old, now, news) => {
  expect(findNews(old, now)).toBe(news);
});
