import { expect, it } from "vitest";

import { formatDuration, filterRows, type Kind, layOutSpans, type Span, totalDuration } from "./spans";

const span = (
  name: string,
  start: number,
  ms: number,
  attributes: Record<string, string | number>,
  children: Span[] = [],
): Span => ({ name, start, ms, attributes, children });

const RUN = span("run", 100, 2000, { "gen_ai.agent.name": "coder" }, [
  span("step", 100.1, 900, { step: 1 }, [
    span("llm.call", 100.1, 500, {
      "gen_ai.request.model": "demo",
      "gen_ai.usage.input_tokens": 7,
      "gen_ai.usage.output_tokens": 3,
    }),
    {
      ...span("tool.call", 100.7, 200, { tool_name: "ls" }),
      why: [{ hook: "permissions.judge", position: "guard", verdict: "pass", ms: 0.4 }],
    },
  ]),
]);

it("lays spans out from the run's beginning", () => {
  const rows = layOutSpans([RUN], false);
  expect(rows.map((row) => [row.label, row.depth, Math.round(row.from), row.ms, row.kind])).toEqual([
    ["coder", 0, 0, 2000, "run"],
    ["step 1", 1, 100, 900, "step"],
    ["demo", 2, 100, 500, "model"],
    ["ls", 2, 700, 200, "tool"],
  ]);
  expect(rows[2]!.tokens).toBe(10);
  expect(totalDuration(rows)).toBe(2000);
});

it("shows the hooks of each span when they are wanted", () => {
  expect(layOutSpans([RUN], true).at(-1)).toMatchObject({ label: "permissions.judge: pass", kind: "hook", depth: 3 });
});

it("keeps what stands above what was looked for", () => {
  const rows = layOutSpans([RUN], true);
  const shown = (words: string, ...kinds: Kind[]) => filterRows(rows, words, new Set(kinds)).map((row) => row.label);
  expect(shown("LS", "run", "step", "model", "tool", "hook")).toEqual(["coder", "step 1", "ls"]);
  expect(shown("", "tool", "model")).toEqual(["demo", "ls"]);
  expect(shown("judge", "run", "hook")).toEqual(["coder", "permissions.judge: pass"]);
  expect(shown("nothing", "run", "tool")).toEqual([]);
});

it("says durations as people do", () => {
  expect([0.25, 12.4, 1530, 125_000].map(formatDuration)).toEqual(["0.25 ms", "12 ms", "1.5 s", "2 min 5 s"]);
});
