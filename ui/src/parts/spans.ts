/** The spans of a run, laid out as a waterfall. */

import type { components } from "../api/schema";
import { formatValue } from "../api/values";

export type Span = components["schemas"]["TraceSpan"];
export type Kind = "run" | "step" | "model" | "tool" | "hook";

export interface Row {
  key: string;
  span: Span;
  depth: number;
  from: number; // milliseconds after the beginning
  ms: number;
  label: string;
  kind: Kind;
  tokens: number;
  cost: number | null;
  failed: boolean;
  open: boolean; // not ended yet
}

const KINDS: Record<string, Kind> = { run: "run", step: "step", "llm.call": "model", "tool.call": "tool" };

export function layOutSpans(spans: readonly Span[], hooks: boolean): Row[] {
  const begin = Math.min(...spans.map((span) => span.start));
  const latest = latestTime(spans);
  const rows: Row[] = [];
  const visit = (span: Span, depth: number, key: string) => {
    const from = (span.start - begin) * 1000;
    rows.push({
      key,
      span,
      depth,
      from,
      ms: span.ms ?? Math.max(0, (latest - span.start) * 1000),
      label: spanLabel(span),
      kind: KINDS[span.name] ?? "step",
      tokens: spanTokens(span),
      cost: span.cost ?? null,
      failed: Boolean(span.error),
      open: span.ms == null,
    });
    if (hooks) rows.push(...hookRows(span, depth + 1, from, key));
    (span.children ?? []).forEach((child, at) => visit(child, depth + 1, `${key}.${at}`));
  };
  spans.forEach((span, at) => visit(span, 0, String(at)));
  return rows;
}

function hookRows(span: Span, depth: number, from: number, key: string): Row[] {
  return (span.why ?? []).map((why, at) => ({
    key: `${key}/h${at}`,
    span: {
      name: why.hook,
      start: span.start,
      ms: why.ms ?? 0,
      attributes: { position: why.position, ...(why.shadow ? { shadow: true } : {}) },
      why: [why],
    },
    depth,
    from,
    ms: why.ms ?? 0,
    label: `${why.hook}: ${why.verdict}`,
    kind: "hook" as const,
    tokens: 0,
    cost: null,
    failed: !["pass", "continue", "approved", "ask"].includes(why.verdict),
    open: false,
  }));
}

/** The last time of which a trace has something: until then, at least, its open spans have lasted. */
function latestTime(spans: readonly Span[]): number {
  return spans.reduce(
    (latest, span) => Math.max(latest, span.start + (span.ms ?? 0) / 1000, latestTime(span.children ?? [])),
    0,
  );
}

function spanLabel(span: Span): string {
  const of = span.attributes ?? {};
  if (span.name === "tool.call") return formatValue(of["tool_name"] ?? of["gen_ai.tool.name"], "tool");
  if (span.name === "llm.call") return formatValue(of["gen_ai.request.model"], "model");
  if (span.name === "step") return `step ${formatValue(of["step"])}`;
  return formatValue(of["gen_ai.agent.name"], span.name);
}

function spanTokens(span: Span): number {
  if (span.name !== "llm.call") return 0;
  const of = span.attributes ?? {};
  return Number(of["gen_ai.usage.input_tokens"] ?? 0) + Number(of["gen_ai.usage.output_tokens"] ?? 0);
}

/** Filter rows by kind and text, with their ancestors. */
export function filterRows(rows: readonly Row[], words: string, kinds: ReadonlySet<Kind>): Row[] {
  const wanted = words.trim().toLowerCase();
  const fits = (row: Row) => kinds.has(row.kind) && (!wanted || rowText(row).includes(wanted));
  const keep = new Set<Row>();
  const above: Row[] = [];
  for (const row of rows) {
    above.length = Math.min(above.length, row.depth);
    above[row.depth] = row;
    if (fits(row)) for (const one of above) if (one && (one === row || kinds.has(one.kind))) keep.add(one);
  }
  return rows.filter((row) => keep.has(row));
}

const rowText = (row: Row): string =>
  `${row.label} ${row.kind} ${row.span.error ?? ""} ${formatValue(row.span.attributes?.["tool_args"])}`.toLowerCase();

export function totalDuration(rows: readonly Row[]): number {
  return Math.max(1, ...rows.map((row) => row.from + row.ms));
}

export function formatDuration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
