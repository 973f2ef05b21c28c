/** Bars by day, split by user. */

import { formatBrief, labelStep, axisTicks } from "../../canvas/scale";
import type { Stacked } from "./sums";
import chart from "../../canvas/chart.module.css";

const WIDE = 640;
const HIGH = 190;
const LEFT = 54;

export function Days({ data, show, label }: { data: Stacked; show: (amount: number) => string; label: string }) {
  const sums = data.values.map((parts) => parts.reduce((sum, part) => sum + part, 0));
  const marks = axisTicks(0, Math.max(...sums, 0), 4);
  const high = marks.at(-1)!;
  const width = WIDE / data.days.length;
  const gap = Math.min(6, width * 0.25);
  const nth = labelStep(data.days.length, 8);
  return (
    <figure className={chart.chart} data-chart="">
      <svg viewBox={`0 0 ${WIDE + LEFT} ${HIGH + 34}`} role="img" aria-label={label}>
        {marks.map((mark) => (
          <g key={mark} transform={`translate(0 ${8 + HIGH - (mark / high) * HIGH})`}>
            <line className={chart.rule} x1={LEFT} x2={WIDE + LEFT} />
            <text x={LEFT - 6} dy="4" textAnchor="end">
              {formatBrief(mark)}
            </text>
          </g>
        ))}
        {data.days.map((day, at) => (
          <g key={day} transform={`translate(${LEFT + at * width} 0)`}>
            <title>{`${day}: ${show(sums[at]!)}${describeDay(data, at, show)}`}</title>
            <rect width={width} height={HIGH + 8} fill="transparent" />
            <Bar values={data.values[at]!} high={high} x={gap / 2} width={width - gap} />
            {at % nth === 0 && (
              <text x={width / 2} y={HIGH + 26} textAnchor="middle">
                {day.slice(5)}
              </text>
            )}
          </g>
        ))}
      </svg>
      <ul className={chart.legend}>
        {data.names.map((name, at) => (
          <li key={name}>
            <i style={{ background: `var(--chart-${at % 6})` }} />
            {name}
          </li>
        ))}
      </ul>
    </figure>
  );
}

function Bar({ values, high, x, width }: { values: number[]; high: number; x: number; width: number }) {
  let top = 8 + HIGH;
  return values.map((value, at) => {
    const height = (value / high) * HIGH;
    top -= height;
    return height > 0 ? (
      <rect
        key={at}
        x={x}
        y={top}
        width={width}
        height={height}
        fill={`var(--chart-${at % 6})`}
        rx={Math.min(2, width / 4)}
      />
    ) : null;
  });
}

function describeDay(data: Stacked, at: number, show: (amount: number) => string): string {
  const named = data.names
    .map((name, place) => [name, data.values[at]![place]!] as const)
    .filter(([, value]) => value > 0);
  return named.length > 1 ? ` (${named.map(([name, value]) => `${name} ${show(value)}`).join(", ")})` : "";
}
