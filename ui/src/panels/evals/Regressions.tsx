/** Cases that fail, and pass with the first variant or in an earlier report. */

import type { EvalReport } from "../../api";
import { formatPlural } from "../../parts/amounts";
import panel from "../panels.module.css";

export function Regressions({ report, open }: { report: EvalReport; open: (id: string) => void }) {
  if (!report.regressions.length) return null;
  return (
    <section aria-label="Regressions">
      <h3>{formatPlural(report.regressions.length, "regression")}</h3>
      <ul className={panel.rows}>
        {report.regressions.map((one) => (
          <li key={`${one.case} ${one.variant} ${one.against}`}>
            <div className={panel.line}>
              <b>{one.case}</b>
              <span>
                fails with {one.variant}, passes{" "}
                {one.against === "variant" ? `with ${one.reference}` : "in the baseline"}
              </span>
              <button onClick={() => open(one.case)} aria-label={`Show ${one.case}`}>
                Show
              </button>
            </div>
            <p className={panel.note}>{one.detail}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}
