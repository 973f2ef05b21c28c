/** A chart as a picture: bars, lines, areas or a pie. It is small, and the same on slides and over tables. */

import type { ChartData } from "./deck";
import { formatBrief, labelStep, axisTicks } from "./scale";
import styles from "./chart.module.css";

const WIDE = 640;
const HIGH = 300;
const LEFT = 52;
const TOP = 10;
const COLOURS = 6;

const seriesColour = (at: number): string => `var(--chart-${at % COLOURS})`;

export function Chart({ data }: { data: ChartData }) {
  const known = data.series.flatMap((one) => one.values.filter((value) => value !== null));
  if (!known.length || !data.labels.length) return <p className="empty">No numbers to plot.</p>;
  const named = data.kind === "pie" ? data.labels : data.series.map((one) => one.name);
  return (
    <figure className={styles.chart} data-chart="">
      {data.title && <figcaption>{data.title}</figcaption>}
      <svg viewBox={`0 0 ${WIDE + LEFT + 8} ${HIGH + TOP + 34}`} role="img" aria-label={summarizeChart(data)}>
        {data.kind === "pie" ? <Pie data={data} /> : <Plot data={data} known={known} />}
      </svg>
      {(named.length > 1 || data.kind === "pie") && (
        <ul className={styles.legend}>
          {named.slice(0, 24).map((name, at) => (
            <li key={at}>
              <i style={{ background: seriesColour(at) }} />
              {name}
            </li>
          ))}
        </ul>
      )}
    </figure>
  );
}

function summarizeChart({ kind, title, labels, series }: ChartData): string {
  return `${title || "Chart"}, ${kind}: ${series.map((one) => one.name).join(", ")} by ${labels.length} labels`;
}

function Plot({ data, known }: { data: ChartData; known: number[] }) {
  const marks = axisTicks(Math.min(...known), Math.max(...known));
  const [low, high] = [marks[0]!, marks.at(-1)!];
  const y = (value: number) => TOP + HIGH - ((value - low) / (high - low)) * HIGH;
  const step = WIDE / data.labels.length;
  const skip = labelStep(data.labels.length, 9);
  return (
    <>
      {marks.map((mark) => (
        <g key={mark}>
          <line
            x1={LEFT}
            x2={LEFT + WIDE}
            y1={y(mark)}
            y2={y(mark)}
            className={mark === 0 ? styles.ground : styles.rule}
          />
          <text x={LEFT - 8} y={y(mark)} textAnchor="end" dominantBaseline="central">
            {formatBrief(mark)}
          </text>
        </g>
      ))}
      {data.labels.map(
        (label, at) =>
          at % skip === 0 && (
            <text key={at} x={LEFT + (at + 0.5) * step} y={HIGH + TOP + 22} textAnchor="middle">
              {truncate(label, Math.floor((step * skip) / 7))}
            </text>
          ),
      )}
      {data.series.map((_, at) =>
        data.kind === "bar" ? (
          <Bars key={at} data={data} at={at} y={y} step={step} />
        ) : (
          <Line key={at} data={data} at={at} y={y} step={step} />
        ),
      )}
    </>
  );
}

interface Drawn {
  data: ChartData;
  at: number; // the number of the series
  y: (value: number) => number;
  step: number;
}

function Bars({ data, at, y, step }: Drawn) {
  const width = (step * 0.76) / data.series.length;
  const { name, values } = data.series[at]!;
  return values.map((value, place) =>
    value === null ? null : (
      <rect
        key={place}
        x={LEFT + place * step + step * 0.12 + at * width}
        y={Math.min(y(value), y(0))}
        width={Math.max(width - 1, 0.5)}
        height={Math.abs(y(value) - y(0))}
        rx={Math.min(2, width / 4)}
        fill={seriesColour(at)}
      >
        <title>{`${data.labels[place] ?? ""}, ${name}: ${value}`}</title>
      </rect>
    ),
  );
}

function Line({ data, at, y, step }: Drawn) {
  const { name, values } = data.series[at]!;
  const points = values.flatMap((value, place) =>
    value === null ? [] : [{ x: LEFT + (place + 0.5) * step, y: y(value), value, place }],
  );
  if (!points.length) return null;
  const path = points.map((point) => `${point.x.toFixed(1)},${point.y.toFixed(1)}`).join(" ");
  return (
    <>
      {data.kind === "area" && (
        <polygon
          points={`${path} ${points.at(-1)!.x.toFixed(1)},${y(0)} ${points[0]!.x.toFixed(1)},${y(0)}`}
          fill={seriesColour(at)}
          opacity="0.25"
        />
      )}
      <polyline points={path} fill="none" stroke={seriesColour(at)} strokeWidth="2.5" strokeLinejoin="round" />
      {points.length <= 80 &&
        points.map((point) => (
          <circle key={point.place} cx={point.x} cy={point.y} r="3" fill={seriesColour(at)}>
            <title>{`${data.labels[point.place] ?? ""}, ${name}: ${point.value}`}</title>
          </circle>
        ))}
    </>
  );
}

function Pie({ data }: { data: ChartData }) {
  const values = (data.series[0]?.values ?? []).map((value) => Math.max(value ?? 0, 0));
  const total = values.reduce((sum, value) => sum + value, 0) || 1;
  const [x, y, radius] = [LEFT + WIDE / 2, TOP + HIGH / 2 + 10, HIGH / 2];
  let begin = 0;
  return values.map((value, at) => {
    const [from, to] = [begin, begin + value / total];
    begin = to;
    const title = <title>{`${data.labels[at] ?? ""}: ${value} (${Math.round((value / total) * 100)} %)`}</title>;
    if (value === total)
      return (
        <circle key={at} cx={x} cy={y} r={radius} fill={seriesColour(at)}>
          {title}
        </circle>
      );
    const place = (part: number) =>
      `${(x + radius * Math.sin(part * 2 * Math.PI)).toFixed(2)} ${(y - radius * Math.cos(part * 2 * Math.PI)).toFixed(2)}`;
    return (
      <path
        key={at}
        d={`M ${x} ${y} L ${place(from)} A ${radius} ${radius} 0 ${to - from > 0.5 ? 1 : 0} 1 ${place(to)} Z`}
        fill={seriesColour(at)}
        className={styles.slice}
      >
        {title}
      </path>
    );
  });
}

const truncate = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
