/** Files that the agent is writing, read from the arguments of its calls as they arrive. Small, since the page loads it. */

import type { Call, Item } from "../state/fold";

export interface Draft {
  path: string;
  text: string;
}

const HEAD = /^\s*\{\s*"path"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"content"\s*:\s*"/;

/** The file in the arguments of a call that are not complete yet: a path, and the content so far. */
export function readDraft(args: string): Draft | null {
  const head = HEAD.exec(args.slice(0, 5_000));
  if (!head) return null;
  const from = head[0].length;
  let end = from;
  for (; end < args.length && args[end] !== '"'; end++) {
    if (args[end] !== "\\") continue;
    const length = args[end + 1] === "u" ? 6 : 2;
    if (end + length > args.length) break; // the rest of the escape is on its way
    end += length - 1;
  }
  try {
    return { path: JSON.parse(head[1]!) as string, text: JSON.parse(`"${args.slice(from, end)}"`) as string };
  } catch {
    return null; // not JSON: the call will fail
  }
}

/** The files that are being written, up to the end of their calls. */
export function openDrafts(items: Item[]): Draft[] {
  const last = items.at(-1);
  if (last?.kind !== "reply") return [];
  return last.calls.flatMap((call) => (last.open ? (readDraft(call.argsText) ?? []) : completeDraft(call)));
}

function completeDraft({ name, ended, args: { path, content } }: Call): Draft[] {
  const isOpen = name === "write_file" && !ended && typeof path === "string" && typeof content === "string";
  return isOpen ? [{ path, text: content }] : [];
}
