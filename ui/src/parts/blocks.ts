/** A text in Markdown, split into parts that can be parsed apart from each other: a streamed one grows only at its end. */

const ENOUGH = 300; // letters of a part: each is parsed by a parser of its own, which takes time to make
const LIST = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const FENCE = /^([ \t]*)(`{3,}|~{3,})([^`]*)$/;
const RAW = /^ {0,3}<(?:script|pre|style|textarea|!|\?)/i; // may have empty lines in it
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m; // a link or a footnote that any other part may name

/** True if parts of the text mean something else without the others. */
export const isEntangled = (text: string): boolean => DEFINITION.test(text);

/** Split a text; its parts together are the text. Code, and a table, is a part of its own. */
export const splitBlocks = (text: string): string[] => createSplitter()(text);

/** The state after some lines of a text. */
interface Scan {
  start: number; // of the open part
  at: number; // the end of the lines
  previous: string; // the line before
  first: string; // the first line of the block
  inside: Inside;
  own: boolean; // the part is code or a table
}

/** Read a line; return true if a part ends before it. */
function readLine(scan: Scan, line: string): boolean {
  const { at, start, previous, first, inside } = scan;
  const apart = Boolean(line.trim()) && !inside && at > start && isBoundary(line, previous, first);
  const single = !inside && (/^(?:`{3}|~{3})/.test(line) || (apart && line.startsWith("|")));
  const cut = apart && (scan.own || single || at - start >= ENOUGH);
  if (cut) Object.assign(scan, { start: at, own: false });
  if (apart || at === scan.start) scan.first = line;
  if (single || (at === scan.start && line.startsWith("|"))) scan.own = true;
  scan.inside = nextInside(inside, line);
  scan.at += line.length + 1;
  scan.previous = line;
  return cut;
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

/** A splitter for one growing text: it reads each complete line once. */
export function createSplitter(): (text: string) => string[] {
  let [seen, settled] = ["", [] as string[]];
  let scan = {} as Scan;
  return (text) => {
    if (!seen || !text.startsWith(seen))
      [scan, settled] = [{ start: 0, at: 0, previous: "", first: "", inside: null, own: false }, []];
    seen = text;
    for (let end = text.indexOf("\n", scan.at); end >= 0; end = text.indexOf("\n", scan.at)) {
      const { start, at } = scan;
      if (readLine(scan, text.slice(at, end))) settled.push(text.slice(start, at));
    }
    const last = { ...scan };
    const isCut = scan.at < text.length && readLine(last, text.slice(scan.at));
    const rest = isCut ? [text.slice(scan.start, scan.at), text.slice(scan.at)] : [text.slice(scan.start)];
    return [...settled, ...rest].filter(Boolean);
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

/** The head of a table, and its rows some at a time. */
export interface LongTableText {
  head: string;
  rows: string[];
}

/** A long table that is a part of its own; null if it is something else. */
export function readLongTable(part: string): LongTableText | null {
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

const [FEWEST, MOST] = [4, 40]; // letters of a column

/** The width of each column of a table in letters, as far as its text shows it. */
export function columnLetters(table: string): number[] {
  const lines = table.split("\n").filter((line) => /[^|\s:-]/.test(line));
  const [names = [], ...rows] = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map(countLetters)); // prettier-ignore
  return names.map((name, at) => Math.min(Math.max(FEWEST, name, ...rows.map((row) => row[at] ?? 0)), MOST));
}

/** The letters of a cell without marks and addresses of links, and some to spare: letters of code are wider. */
function countLetters(cell: string): number {
  const letters = cell.trim().replace(/[*_`]|\]\([^)]*\)/g, "").length;
  return Math.ceil(letters * (cell.includes("`") ? 1.3 : 1.1)) + 1;
}
