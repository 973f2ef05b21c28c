/** The spans of a run, laid out as a waterfall. */

import type { Why } from "../state/fold";

export interface Span {
  name: string;
  start: number; // seconds
  ms: number | null;
  attributes: Record<string, unknown>;
  error?: string;
  events?: { name: string; attributes: Record<string, unknown> }[];
  why?: Why[];
  children: Span[];
}

export interface Row {
  key: string;
  span: Span;
  depth: number;
  from: number; // milliseconds after the beginning
  ms: number;
  label: string;
  kind: "run" | "step" | "model" | "tool" | "hook";
  tokens: number;
}

const KINDS: Record<string, Row["kind"]> = { run: "run", step: "step", "llm.call": "model", "tool.call": "tool" };

export function lay(spans: Span[], hooks: boolean): Row[] {
  const begin = Math.min(...spans.map((span) => span.start));
  const rows: Row[] = [];
  const visit = (span: Span, depth: number, key: string) => {
    const from = (span.start - begin) * 1000;
    rows.push({ key, span, depth, from, ms: span.ms ?? 0, label: label(span), kind: KINDS[span.name] ?? "step", tokens: tokens(span) });
    if (hooks) rows.push(...hookRows(span, depth + 1, from, key));
    span.children.forEach((child, at) => visit(child, depth + 1, `${key}.${at}`));
  };
  spans.forEach((span, at) => visit(span, 0, String(at)));
  return rows;
}

function hookRows(span: Span, depth: number, from: number, key: string): Row[] {
  return (span.why ?? []).map((why, at) => ({
    key: `${key}/h${at}`,
    span: { ...span, name: why.hook, children: [], why: [why] },
    depth,
    from,
    ms: why.ms ?? 0,
    label: `${why.hook}: ${why.verdict}`,
    kind: "hook",
    tokens: 0,
  }));
}

function label(span: Span): string {
  const of = span.attributes;
  if (span.name === "tool.call") return String(of["tool_name"] ?? of["gen_ai.tool.name"] ?? "tool");
  if (span.name === "llm.call") return String(of["gen_ai.request.model"] ?? "model");
  if (span.name === "step") return `step ${String(of["step"] ?? "")}`;
  return String(of["gen_ai.agent.name"] ?? span.name);
}

function tokens(span: Span): number {
  if (span.name !== "llm.call") return 0;
  return Number(span.attributes["gen_ai.usage.input_tokens"] ?? 0) + Number(span.attributes["gen_ai.usage.output_tokens"] ?? 0);
}

export function total(rows: Row[]): number {
  return Math.max(1, ...rows.map((row) => row.from + row.ms));
}

export function duration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
