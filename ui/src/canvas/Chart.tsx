/** A chart: bars, lines, areas or a pie, with its legend and its figures as a table. It is the same on slides and over tables. */

import { Suspense, useState } from "react";

import { formatPlural } from "../parts/amounts";
import { lazyPart } from "../parts/lazyPart";
import { type Options } from "./chartConfig";
import type { ChartData } from "./deck";
import styles from "./chart.module.css";

const ChartPlot = lazyPart(() => import("./ChartPlot"));

const COLOURS = 6;
const NAMES = 24; // of a legend
const PLAIN: Options = {};

interface Props {
  data: ChartData;
  label?: string;
  options?: Options;
  quiet?: boolean; // on a slide the table is for screen readers alone
}

export function Chart({ data, label = summarizeChart(data), options = PLAIN, quiet = false }: Props) {
  const known = data.series.some((one) => one.values.some((value) => value !== null));
  if (!known || !data.labels.length) return <p className="empty">No numbers to plot.</p>;
  const named = data.kind === "pie" ? data.labels : data.series.map((one) => one.name);
  return (
    <figure className={styles.chart} data-chart={data.kind}>
      {data.title && <figcaption>{data.title}</figcaption>}
      <Suspense fallback={<div className={styles.plot} />}>
        <ChartPlot data={data} label={label} options={options} />
      </Suspense>
      {(named.length > 1 || data.kind === "pie") && (
        <ul className={styles.legend}>
          {named.slice(0, NAMES).map((name, at) => (
            <li key={at}>
              <i style={{ background: `var(--chart-${at % COLOURS})` }} />
              {name}
            </li>
          ))}
        </ul>
      )}
      {quiet ? (
        <div className="visually-hidden">
          <Figures data={data} show={options.show} />
        </div>
      ) : (
        <Unfolded data={data} show={options.show} />
      )}
    </figure>
  );
}

function summarizeChart({ kind, title, labels, series }: ChartData): string {
  return `${title || "Chart"}, ${kind}: ${series.map((one) => one.name).join(", ")} by ${formatPlural(labels.length, "label")}`;
}

interface Shown {
  data: ChartData;
  show: ((amount: number) => string) | undefined;
}

/** The table below a chart, once it is asked for. */
function Unfolded(props: Shown) {
  const [open, setOpen] = useState(false);
  return (
    <details className={styles.figures} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Show as a table</summary>
      {open && (
        <div tabIndex={0} role="group" aria-label="Figures of the chart">
          <Figures {...props} />
        </div>
      )}
    </details>
  );
}

function Figures({ data: { title, labels, series }, show = String }: Shown) {
  return (
    <table>
      {title && <caption>{title}</caption>}
      <thead>
        <tr>
          <td />
          {series.map((one, at) => (
            <th key={at} scope="col">
              {one.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {labels.map((label, at) => (
          <tr key={at}>
            <th scope="row">{label}</th>
            {series.map(({ values }, place) => (
              <td key={place}>{values[at] === null || values[at] === undefined ? "" : show(values[at])}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
