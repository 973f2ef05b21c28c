/** A text in Markdown, split into parts that can be parsed apart from each other: a streamed one grows only at its end. */

const ENOUGH = 300; // letters of a part: each is parsed by a parser of its own, which takes time to make
const LIST = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const FENCE = /^([ \t]*)(`{3,}|~{3,})([^`]*)$/;
const RAW = /^ {0,3}<(?:script|pre|style|textarea|!|\?)/i; // may have empty lines in it
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m; // a link or a footnote that any other part may name

/** True if parts of the text mean something else without the others. */
export const isEntangled = (text: string): boolean => DEFINITION.test(text);

/** Split a text; its parts together are the text. Code, and a table, is a part of its own. */
export function splitBlocks(text: string): string[] {
  const found: string[] = [];
  let [start, at] = [0, 0];
  let [previous, first] = ["", ""]; // the line before, and the first one of the block
  let inside: Inside = null;
  let own = false; // the part is code or a table
  const cut = () => {
    found.push(text.slice(start, at));
    [start, own] = [at, false];
  };
  for (const line of text.split("\n")) {
    const apart = Boolean(line.trim()) && !inside && at > start && isBoundary(line, previous, first);
    const single = !inside && (/^(?:`{3}|~{3})/.test(line) || (apart && line.startsWith("|")));
    if (apart && (own || single || at - start >= ENOUGH)) cut();
    if (apart || at === start) first = line;
    if (single || (at === start && line.startsWith("|"))) own = true;
    inside = nextInside(inside, line);
    at = Math.min(at + line.length + 1, text.length);
    previous = line;
  }
  if (at > start) cut();
  return found;
}

/** The open block of a line, in which an empty line ends nothing: code with its mark, a formula, or raw text. */
type Inside = { indent: number; mark: string } | "$$" | "\\[" | "raw" | null;

function nextInside(inside: Inside, line: string): Inside {
  if (inside === "raw") return inside;
  if (inside === "\\[") return line.includes("\\]") ? null : inside;
  const fence = FENCE.exec(line);
  if (inside === "$$" || inside === null) {
    if (inside === null && fence) return { indent: fence[1]!.length, mark: fence[2]! };
    if (inside === null && RAW.test(line)) return "raw";
    if ((line.match(/\$\$/g)?.length ?? 0) % 2) return inside ? null : "$$";
    return inside === null && /^\s*\\\[/.test(line) && !line.includes("\\]") ? "\\[" : inside;
  }
  const ends = fence?.[2]!.startsWith(inside.mark) && !fence[3]!.trim() && fence[1]!.length <= inside.indent + 3;
  return ends ? null : inside;
}

/** True if a block ends before this line: an empty line does it, unless a list continues, and so does code. */
function isBoundary(line: string, previous: string, first: string): boolean {
  if (/^(?:`{3}|~{3})/.test(line)) return true;
  if (previous.trim()) return /^(?:`{3,}|~{3,})\s*$/.test(previous) && /^\S/.test(line);
  return /^\S/.test(line) && !(LIST.test(line) && LIST.test(first));
}

/** A splitter for one growing text: it reads only the end, since the blocks before it do not change. */
export function createSplitter(): (text: string) => string[] {
  let known: string[] = [];
  let seen = "";
  return (text) => {
    if (!text.startsWith(seen)) known = [];
    const settled = known.slice(0, -2); // the boundary before the last part depends on a line that may not be complete
    const from = settled.reduce((sum, part) => sum + part.length, 0);
    known = [...settled, ...splitBlocks(text.slice(from))];
    seen = text;
    return known;
  };
}

/** Code that is a part of its own: its language, its text, and whether its end is there. */
export function readFence(part: string): { word: string; text: string; closed: boolean } | null {
  const [head = "", ...lines] = part.trimEnd().split("\n");
  const mark = /^(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/.exec(head);
  if (!mark) return null;
  const isEnd = (line: string) => line.trim().startsWith(mark[1]!) && !line.trim().replace(/[`~]/g, "");
  const closed = lines.length > 0 && isEnd(lines.at(-1)!);
  if (closed) lines.pop();
  return lines.some(isEnd) ? null : { word: mark[2]!, text: lines.join("\n"), closed };
}

const ROWS = 25; // of a table that are parsed at once
const LONG = 2 * ROWS;

/** A long table that is a part of its own: its head, and its rows some at a time; null if it is something else. */
export function readLongTable(part: string): { head: string; rows: string[] } | null {
  if (!part.startsWith("|")) return null;
  const lines = part.trimEnd().split("\n");
  const [names, rule, ...rows] = lines;
  if (rows.length <= LONG || !/^\|(?:\s*:?-+:?\s*\|)+\s*$/.test(rule!)) return null;
  if (!rows.slice(0, -1).every((row) => row.startsWith("|"))) return null; // the last one may be incomplete
  const chunks = Array.from({ length: Math.ceil(rows.length / ROWS) }, (_, at) =>
    rows.slice(at * ROWS, (at + 1) * ROWS).join("\n"),
  );
  return { head: `${names}\n${rule}\n`, rows: chunks };
}
