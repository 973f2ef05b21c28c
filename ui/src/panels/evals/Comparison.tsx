/** The table of cases, with a column for each variant. */

import type { EvalCaseResult, EvalCaseRow, EvalReport } from "../../api";
import { formatFigures, VERDICTS } from "./cases";
import panel from "../panels.module.css";
import styles from "./evals.module.css";

interface Props {
  report: EvalReport;
  cases: EvalCaseRow[];
  open: string;
  choose: (id: string) => void;
}

export function Comparison({ report, cases, open, choose }: Props) {
  const names = report.variants.map((one) => one.name);
  return (
    <div className={panel.wide} role="region" aria-label="Table of cases" tabIndex={0}>
      <table className={styles.evalCases}>
        <thead>
          <tr>
            <th scope="col">case</th>
            {names.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {cases.map((one) => (
            <tr key={one.id} data-open={one.id === open || undefined}>
              <th scope="row">
                <button className="plain" aria-expanded={one.id === open} onClick={() => choose(one.id)}>
                  {one.id}
                </button>
              </th>
              {names.map((name) => (
                <td key={name}>
                  <Cell result={one.results[name]} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ result }: { result: EvalCaseResult | undefined }) {
  if (!result) return <span className={panel.note}>not run</span>;
  const [word, tone] = VERDICTS[result.verdict];
  return (
    <>
      <span className={panel.chip} data-tone={tone}>
        {word}
      </span>{" "}
      <span className={panel.note}>{formatFigures(result)}</span>
    </>
  );
}
