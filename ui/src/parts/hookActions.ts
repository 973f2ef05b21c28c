/** Decisions of each hook in a run, summed over its spans. */

import type { components } from "../api/schema";
import { formatPlural } from "./amounts";
import { formatDuration } from "./spans";

type Span = components["schemas"]["TraceSpan"];
type Verdict = components["schemas"]["HookVerdict"];

const OPERATIONS: Record<string, string> = {
  run: "run",
  step: "step",
  "llm.call": "model_call",
  "tool.call": "tool_use",
};

const PAST: Record<string, string> = {
  pass: "passed",
  block: "blocked",
  ask: "asked the user",
  stop: "stopped the run",
  continue: "continued the run",
  failed: "failed",
  approved: "was approved",
  refused: "was denied",
};

export interface Deed {
  text: string;
  acted: boolean; // it did more than pass
}

/** By operation and hook, as in `of("tool_use", "permissions.check")`. */
export type Deeds = (operation: string, hook: string) => Deed | undefined;

export function sumHookActions(spans: readonly Span[]): Deeds {
  const found = new Map<string, Verdict[]>();
  visitSpans(spans, (span) => {
    for (const why of span.why ?? []) {
      const key = `${OPERATIONS[span.name] ?? span.name} ${why.hook}`;
      found.set(key, [...(found.get(key) ?? []), why]);
    }
  });
  return (operation, hook) => {
    const rows = found.get(`${operation} ${hook}`);
    return rows && { text: describeVerdicts(rows), acted: rows.some(isAction) };
  };
}

export function visitSpans(spans: readonly Span[], look: (span: Span) => void): void {
  for (const span of spans) {
    look(span);
    visitSpans(span.children ?? [], look);
  }
}

const isAction = (row: Verdict): boolean => row.verdict !== "pass" || Boolean(row.changed);

function describeVerdicts(rows: Verdict[]): string {
  const counts = new Map<string, number>();
  for (const row of rows) {
    const said = row.changed ? "changed" : (PAST[row.verdict] ?? row.verdict);
    counts.set(said, (counts.get(said) ?? 0) + 1);
  }
  const said = [...counts].map(([words, times]) =>
    times === 1 ? `${words} once` : `${words} ${formatPlural(times, "time")}`,
  );
  const reason = rows.findLast((row) => row.reason)?.reason;
  const took = rows.reduce((sum, row) => sum + (row.ms ?? 0), 0);
  return `${said.join(", ")}, in ${formatDuration(took)}${reason ? ` (${reason})` : ""}`;
}
