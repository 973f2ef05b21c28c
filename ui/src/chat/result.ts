/** A tool result in readable form. */

export interface Shown {
  text: string;
  error: string; // stderr of a command
  exit: number | null; // of a command
  note: string; // where the rest of a long output is
}

/** The result of a command has its outputs apart; all else that is JSON is laid out. */
export function formatResult(output: string): Shown {
  const value = parseJson(output);
  if (isCommand(value))
    return { text: value.stdout, error: value.stderr, exit: value.exit_code, note: value.note ?? "" };
  return {
    text: value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : output,
    error: "",
    exit: null,
    note: "",
  };
}

interface CommandResult {
  stdout: string;
  stderr: string;
  exit_code: number | null;
  note?: string;
}

function isCommand(value: unknown): value is CommandResult {
  if (typeof value !== "object" || value === null) return false;
  const { stdout, stderr } = value as Record<string, unknown>;
  return typeof stdout === "string" && typeof stderr === "string" && "exit_code" in value;
}

const MOST_CHARS = 200_000;

function parseJson(text: string): unknown {
  if (!/^\s*[{[]/.test(text) || text.length > MOST_CHARS) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The exit code of a command that failed; 0 otherwise. */
export function failedExit(output: string): number {
  const code = /^\s*\{"stdout":/.test(output) ? formatResult(output).exit : null;
  return code ?? 0;
}

/** Summarize a call in a few words. */
export function summarizeArguments(args: Record<string, unknown>): string {
  const first =
    args["command"] ??
    args["path"] ??
    args["pattern"] ??
    args["query"] ??
    args["url"] ??
    args["prompt"] ??
    args["question"] ??
    Object.values(args)[0];
  const text = (typeof first === "string" ? first : first === undefined ? "" : JSON.stringify(first)).replace(
    /\s+/g,
    " ",
  );
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
