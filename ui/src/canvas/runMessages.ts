/** Messages of a page that runs on the canvas. They are untrusted: anything else than a message is left out. */

import { fence } from "../parts/fence";

export interface Entry {
  level: "log" | "info" | "warn" | "error" | "debug";
  text: string;
}

export type RunMessage = { kind: "ready" | "alive" } | { kind: "console"; entries: Entry[] };

const LEVELS: readonly Entry["level"][] = ["log", "info", "warn", "error", "debug"];
const [MOST, LONGEST] = [200, 4_000];

export const MOST_ENTRIES = 500; // older ones are dropped

export function readMessage(data: unknown): RunMessage | null {
  if (typeof data !== "object" || data === null) return null;
  const { wick: kind, entries, dropped } = data as Record<string, unknown>;
  if (kind === "ready" || kind === "alive") return { kind };
  if (kind !== "console" || !Array.isArray(entries)) return null;
  const known = entries.slice(0, MOST).flatMap(readEntry);
  const more =
    typeof dropped === "number" && dropped > 0 ? [{ level: "warn" as const, text: `${dropped} more lines` }] : [];
  return { kind, entries: [...known, ...more] };
}

function readEntry(value: unknown): Entry[] {
  if (typeof value !== "object" || value === null) return [];
  const { level, text } = value as Record<string, unknown>;
  const known = LEVELS.find((one) => one === level);
  return known && typeof text === "string" ? [{ level: known, text: text.slice(0, LONGEST) }] : [];
}

const [REPORTED, REPORT_CHARS] = [20, 6_000];

/** The message that asks the agent to fix a page, with the end of its console. */
export function fixRequest(path: string, entries: Entry[]): string {
  const lines = entries.slice(-REPORTED).map(({ level, text }) => `[${level}] ${text}`);
  return `${path} has errors when it runs on the canvas. Fix it.\n\nIts console:\n\n${fence(lines.join("\n").slice(-REPORT_CHARS))}`;
}
