/** Usage sums: by day, agent, model or user. */

import type { UsageRow } from "../../api";

export type Measure = "tokens" | "cost" | "runs";
export type Split = "model" | "agent" | "user";

export const OTHERS = "others";

export function amountOf(row: UsageRow, measure: Measure): number {
  if (measure === "cost") return row.cost;
  return measure === "runs" ? row.runs : row.input_tokens + row.output_tokens;
}

/** Return the usage of each one, the largest first. */
export function sumBy(rows: readonly UsageRow[], split: Split, measure: Measure): [string, number][] {
  const sums = new Map<string, number>();
  for (const row of rows) sums.set(row[split], (sums.get(row[split]) ?? 0) + amountOf(row, measure));
  return [...sums]
    .filter(([, sum]) => sum > 0)
    .sort(([one, more], [other, less]) => less - more || one.localeCompare(other));
}

/** Every day from the first to the last, also those on which nothing was used. */
export function listDays(since: string, until: string): string[] {
  const found: string[] = [];
  for (let at = Date.parse(since); at <= Date.parse(until); at += 86_400_000)
    found.push(new Date(at).toISOString().slice(0, 10));
  return found;
}

export interface Stacked {
  days: string[];
  names: string[];
  values: number[][]; // by day, then by name
}

/** By day, split among the largest users; the others are summed. */
export function stackByDay(
  rows: readonly UsageRow[],
  all: string[],
  split: Split,
  measure: Measure,
  most = 5,
): Stacked {
  const ranked = sumBy(rows, split, measure).map(([name]) => name);
  const names = ranked.length > most + 1 ? [...ranked.slice(0, most), OTHERS] : ranked;
  const place = new Map(ranked.map((name, at) => [name, Math.min(at, names.length - 1)]));
  const values = all.map(() => names.map(() => 0));
  const day = new Map(all.map((date, at) => [date, at]));
  for (const row of rows) {
    const [at, name] = [day.get(row.day), place.get(row[split])];
    if (at !== undefined && name !== undefined) values[at]![name]! += amountOf(row, measure);
  }
  return { days: all, names, values };
}

/** The first and the last day of a period that ends today, in UTC as the server counts. */
export function periodOf(length: number, now = Date.now()): { since: string; until: string } {
  const day = (at: number) => new Date(at).toISOString().slice(0, 10);
  return { since: day(now - (length - 1) * 86_400_000), until: day(now) };
}
