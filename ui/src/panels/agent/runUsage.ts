/** The usage of a run against its limits. */

import type { Run, Trace } from "../../api";
import { visitSpans } from "../../parts/hookActions";

export interface Taken {
  steps: number;
  tokens: number;
  seconds: number;
  cost: number;
  tool_calls: number;
}

export const NOTHING: Taken = { steps: 0, tokens: 0, seconds: 0, cost: 0, tool_calls: 0 };

/** Steps and tool calls are known of a run that has a trace; those of its subagents are their own. */
export function measureRun(run: Run, trace: Trace | null, now = Date.now() / 1000): Taken {
  const own = { steps: 0, tool_calls: 0 };
  visitSpans(trace?.spans ?? [], (span) => {
    if (span.attributes?.["run_id"] !== run.id) return;
    if (span.name === "step") own.steps += 1;
    if (span.name === "tool.call") own.tool_calls += 1;
  });
  const tokens = (run.usage?.input_tokens ?? 0) + (run.usage?.output_tokens ?? 0);
  return { ...own, tokens, seconds: Math.max(0, (run.ended ?? now) - run.started), cost: run.cost ?? 0 };
}
