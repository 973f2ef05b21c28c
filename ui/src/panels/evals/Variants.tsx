/** The totals of each variant. */

import type { EvalReport } from "../../api";
import { formatShort } from "../../parts/amounts";
import { formatCost } from "./cases";
import panel from "../panels.module.css";

export function Variants({ report }: { report: EvalReport }) {
  return (
    <section aria-label="Variants">
      <h3>Variants</h3>
      <div className={panel.wide} role="region" aria-label="Table of variants" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">variant</th>
              <th scope="col">passed</th>
              <th scope="col" className={panel.number}>
                score
              </th>
              <th scope="col" className={panel.number}>
                tokens
              </th>
              <th scope="col" className={panel.number}>
                cost
              </th>
            </tr>
          </thead>
          <tbody>
            {report.variants.map((one) => (
              <tr key={one.name}>
                <th scope="row" title={one.agent}>
                  {one.name}
                </th>
                <td>
                  <span className={panel.chip} data-tone={one.failed ? "bad" : "good"}>
                    {one.passed} of {one.passed + one.failed}
                  </span>
                </td>
                <td className={panel.number}>{one.score.toFixed(2)}</td>
                <td className={panel.number}>{formatShort(one.tokens)}</td>
                <td className={panel.number}>{formatCost(one.cost)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
