/** Selection and formatting of the cases of an eval report. */

import type { EvalCaseResult, EvalCaseRow, EvalReport } from "../../api";
import { formatDollars, formatShort } from "../../parts/amounts";

export type Filter = "all" | "failed" | "regressed";

export const FILTERS: readonly (readonly [Filter, string])[] = [
  ["all", "All"],
  ["failed", "Failed"],
  ["regressed", "Regressions"],
];

export function filterCases(report: EvalReport, filter: Filter): EvalCaseRow[] {
  if (filter === "all") return report.cases;
  if (filter === "failed")
    return report.cases.filter((one) => Object.values(one.results).some((result) => !result.passed));
  const regressed = new Set(report.regressions.map((one) => one.case));
  return report.cases.filter((one) => regressed.has(one.id));
}

/** The words and colours of verdicts. */
export const VERDICTS: Record<EvalCaseResult["verdict"], readonly [string, "good" | "warm" | "bad"]> = {
  passed: ["pass", "good"],
  changed: ["changed", "warm"],
  failed: ["fail", "bad"],
  regressed: ["regressed", "bad"],
  known_failure: ["known failure", "warm"],
};

export const formatCost = (cost: number | null | undefined): string =>
  cost === null || cost === undefined ? "cost unknown" : formatDollars(cost);

/** The figures of a result in one line. */
export const formatFigures = (result: EvalCaseResult): string =>
  `${result.score.toFixed(2)}, ${formatShort(result.tokens)} tokens, ${formatCost(result.cost)}`;
