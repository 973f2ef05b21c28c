/** A chart as Chart.js draws it, in the colours of the page. */

import type { ChartConfiguration, ChartDataset, TooltipItem } from "chart.js";

import type { ChartData } from "./deck";
import { formatBrief } from "./scale";

export interface Look {
  colours: string[]; // of the series, as rgb(…)
  ink: string;
  ground: string; // behind the chart
  size: number; // of letters, in pixels
}

export interface Options {
  stacked?: boolean;
  show?: (amount: number) => string;
}

const MARKED = 80; // points of a line that are drawn one by one
const LETTERS = 16; // of a label

export function chartConfig(
  data: ChartData,
  look: Look,
  { stacked = false, show = String }: Options,
): ChartConfiguration {
  const isPie = data.kind === "pie";
  const type = data.kind === "area" ? "line" : data.kind;
  const datasets: ChartDataset[] = isPie
    ? [pieSlices(data, look)]
    : data.series.map((one, at) => seriesDataset(data, look, one, at));
  return {
    type,
    data: { labels: data.labels, datasets },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: isPie ? { mode: "nearest" } : { mode: "index", intersect: false },
      ...(isPie ? {} : { scales: axes(look, stacked) }),
      plugins: {
        legend: { display: false }, // the page has one
        tooltip: {
          bodyFont: { size: look.size },
          titleFont: { size: look.size },
          filter: (item) => !stacked || item.raw !== 0,
          callbacks: { label: isPie ? shareLabel : (item) => `${item.dataset.label}: ${show(item.raw as number)}` },
        },
      },
    },
  };
}

const colourOf = (look: Look, at: number): string => look.colours[at % look.colours.length]!;

function seriesDataset(data: ChartData, look: Look, one: ChartData["series"][number], at: number): ChartDataset {
  const colour = colourOf(look, at);
  const common = { label: one.name, data: one.values };
  if (data.kind === "bar") return { ...common, backgroundColor: colour, borderRadius: 2, maxBarThickness: 90 };
  return {
    ...common,
    borderColor: colour,
    borderWidth: 2.5,
    pointBackgroundColor: colour,
    pointRadius: data.labels.length > MARKED ? 0 : 3,
    spanGaps: true,
    ...(data.kind === "area" ? { fill: "origin", backgroundColor: translucent(colour) } : {}),
  };
}

function pieSlices({ labels, series }: ChartData, look: Look): ChartDataset {
  return {
    data: (series[0]?.values ?? []).map((value) => Math.max(value ?? 0, 0)),
    backgroundColor: labels.map((_, at) => colourOf(look, at)),
    borderColor: look.ground,
    borderWidth: 1.5,
  };
}

function axes(look: Look, stacked: boolean) {
  const ticks = { color: look.ink, font: { size: look.size } };
  const grid = { color: translucent(look.ink, 0.14) };
  return {
    x: {
      stacked,
      grid: { display: false },
      ticks: {
        ...ticks,
        maxRotation: 0,
        callback: function (this: { getLabelForValue: (at: number) => string }, at: number | string) {
          return truncate(this.getLabelForValue(Number(at)), LETTERS);
        },
      },
    },
    y: {
      stacked,
      beginAtZero: true,
      grid,
      ticks: { ...ticks, callback: (value: number | string) => formatBrief(Number(value)) },
    },
  };
}

function shareLabel(item: TooltipItem<keyof import("chart.js").ChartTypeRegistry>): string {
  const total = (item.dataset.data as number[]).reduce((sum, value) => sum + value, 0) || 1;
  const value = item.raw as number;
  return `${item.label}: ${value} (${Math.round((value / total) * 100)} %)`;
}

const translucent = (colour: string, part = 0.25): string =>
  colour.replace(/^rgb\((.*)\)$/, (_, parts: string) => `rgba(${parts}, ${part})`);

const truncate = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
