/** Columns of a table as a chart: which, against which, and of which kind. */

import { useMemo, useState } from "react";

import { Chart } from "./Chart";
import type { ChartData } from "./deck";
import { parseNumber, numericColumns, type Table } from "./table";
import styles from "./canvas.module.css";

const KINDS = ["bar", "line", "area", "pie"] as const;
export const MOST_POINTS = 1_000;
const MOST_BARS = 60;

export function DataChart({ table }: { table: Table }) {
  const able = useMemo(() => numericColumns(table), [table]);
  const [kind, setKind] = useState<ChartData["kind"] | null>(null);
  const [along, setAlong] = useState(() => firstLabel(table, able));
  const [chosen, setChosen] = useState<number[] | null>(null);
  const series = useMemo(() => {
    const wanted = chosen ?? able.filter((column) => column !== along).slice(0, 3);
    return wanted.filter((column) => column < table.columns.length);
  }, [chosen, able, along, table]);
  const shown = kind ?? (table.rows.length > MOST_BARS ? "line" : "bar");
  const data = useMemo(() => chartOf(table, shown, along, series), [table, shown, along, series]);
  if (!able.length) return <p className="empty">This table has no numeric columns to plot.</p>;
  const flip = (column: number) =>
    setChosen(series.includes(column) ? series.filter((one) => one !== column) : [...series, column]);
  return (
    <div className={styles.dataChart}>
      <div className={styles.chartOptions}>
        <label>
          Chart{" "}
          <select value={shown} onChange={(event) => setKind(event.target.value as ChartData["kind"])}>
            {KINDS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label>
          by{" "}
          <select value={along} onChange={(event) => setAlong(Number(event.target.value))}>
            {table.columns.map((name, at) => (
              <option key={at} value={at}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <fieldset>
          <legend className="visually-hidden">Columns to plot</legend>
          {able.map((column) => (
            <label key={column}>
              <input type="checkbox" checked={series.includes(column)} onChange={() => flip(column)} />{" "}
              {table.columns[column]}
            </label>
          ))}
        </fieldset>
      </div>
      {series.length ? <Chart data={data} /> : <p className="empty">Choose a column to plot.</p>}
      {table.rows.length > MOST_POINTS && (
        <p className="empty">
          Showing the first {MOST_POINTS.toLocaleString()} of {table.rows.length.toLocaleString()} rows.
        </p>
      )}
    </div>
  );
}

function firstLabel(table: Table, able: number[]): number {
  return Math.max(
    0,
    table.columns.findIndex((_, at) => !able.includes(at)),
  );
}

export function chartOf(table: Table, kind: ChartData["kind"], along: number, columns: number[]): ChartData {
  const rows = table.rows.slice(0, MOST_POINTS);
  return {
    kind,
    title: "",
    labels: rows.map((row) => row[along] ?? ""),
    series: columns.map((column) => ({
      name: table.columns[column] ?? "",
      values: rows.map((row) => parseNumber(row[column] ?? "")),
    })),
  };
}
