/** The figures themselves, as the server counts them. */

import type { UsageReport } from "../../api";
import { formatCount, formatDollars } from "../../parts/amounts";
import panel from "../panels.module.css";

export function Table({ report, users }: { report: UsageReport; users: boolean }) {
  const rows = report.rows.toReversed();
  return (
    <details className={panel.wide}>
      <summary>Show as table</summary>
      <table aria-label="Usage by day, agent and model">
        <thead>
          <tr>
            <th>day</th>
            {users && <th>user</th>}
            <th>agent</th>
            <th>model</th>
            <th className={panel.number}>runs</th>
            <th className={panel.number}>in</th>
            <th className={panel.number}>cached</th>
            <th className={panel.number}>out</th>
            <th className={panel.number}>cost</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.day} ${row.user_id} ${row.agent} ${row.model}`}>
              <td>{row.day}</td>
              {users && <td>{row.user}</td>}
              <td>{row.agent}</td>
              <td>{row.model}</td>
              <td className={panel.number}>{formatCount(row.runs)}</td>
              <td className={panel.number}>{formatCount(row.input_tokens)}</td>
              <td className={panel.number}>{formatCount(row.cached_tokens)}</td>
              <td className={panel.number}>{formatCount(row.output_tokens)}</td>
              <td className={panel.number}>{row.unpriced && !row.cost ? "unknown" : formatDollars(row.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
