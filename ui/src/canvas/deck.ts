/** A slide deck, read from the Markdown that the skill `slides` writes. */

import { isBlank, visibleLines, removeComments } from "./comments";
import { type Code, findCodeLines } from "./codeLines";

export interface ChartData {
  kind: "bar" | "line" | "area" | "pie";
  title: string;
  labels: string[];
  series: { name: string; values: (number | null)[] }[];
}

export type Block =
  | { kind: "text"; text: string }
  | { kind: "chart"; chart: ChartData }
  | { kind: "picture"; words: string; path: string }
  | { kind: "columns"; columns: Block[][] };

export const THEMES = ["plain", "ink", "flame", "sea", "forest"] as const;
export const LAYOUTS = ["title", "section", "center", "plain"] as const;
export type Theme = (typeof THEMES)[number];
export type Layout = (typeof LAYOUTS)[number];

export interface Slide {
  heading: string;
  blocks: Block[];
  notes: string;
  layout: Layout;
}

export interface Deck {
  title: string;
  author: string;
  theme: Theme;
  slides: Slide[];
}

const CHART = /^(?:`{3,}|~{3,})\s*chart(?:\s+(\S+).*)?$/;
const PICTURE = /^!\[([^\]]*)\]\(([^)\s]+)\)$/;
const HEADING = /^ {0,3}#{1,6}\s+\S/;
const FIELD = /^[\p{L}\p{N}_][\p{L}\p{N}_ -]*:/u;
const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\([^)\s]+\)/g;

/** True if a document is a deck: several parts between dashes that start with headings. */
export function isDeck(text: string): boolean {
  const { fields, rest } = frontMatter(linesOf(text));
  const parts = splitParts(rest)
    .map(visibleLines)
    .filter((part) => part.some((line) => line.trim()));
  const headed = parts.filter((part) => HEADING.test(part.find((line) => line.trim() && !/^Layout:/.test(line)) ?? ""));
  return parts.length > 1 && (fields["theme"] !== undefined || headed.length >= parts.length * 0.6);
}

export function readDeck(text: string): Deck {
  const { fields, rest } = frontMatter(linesOf(text));
  const slides = splitParts(rest)
    .filter((part) => !isBlank(part))
    .map((part) => parseSlide(visibleLines(part)));
  const theme = THEMES.find((one) => one === fields["theme"]?.toLowerCase()) ?? "plain";
  return { title: fields["title"] || slides[0]?.heading || "", author: fields["author"] ?? "", theme, slides };
}

export const linesOf = (text: string): string[] => text.replace(/^\uFEFF+/, "").split(/\r\n?|\n/);

export function frontMatter(all: string[]): { fields: Record<string, string>; rest: string[] } {
  if (all[0]?.trim() !== "---") return { fields: {}, rest: all };
  const end = all.findIndex((line, at) => at > 0 && line.trim() === "---");
  const inside = all.slice(1, end < 0 ? 0 : end);
  if (end < 0 || !inside.every((line) => FIELD.test(line.trim()))) return { fields: {}, rest: all };
  const fields = inside.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).replace(/^["'\s]+|["'\s]+$/g, "")];
  });
  return { fields: Object.fromEntries(fields) as Record<string, string>, rest: all.slice(end + 1) };
}

/** The parts between lines of a mark, which does not count inside of code and of comments: slides, or columns. */
export function splitParts(all: string[], mark = "---"): string[][] {
  const visible = removeComments(all);
  const code = findCodeLines(visible.map((line) => line ?? ""));
  const parts: string[][] = [[]];
  for (const [at, line] of all.entries()) {
    if (!code[at] && visible[at] !== null && line.trim() === mark) parts.push([]);
    else parts.at(-1)!.push(line);
  }
  return parts;
}

/** Return the index of the layout line of a part, which must be its first line; -1 without a layout. */
export function layoutAt(part: string[]): number {
  const visible = removeComments(part);
  const first = visible.findIndex((line) => line?.trim());
  return first >= 0 && /^Layout:/.test(visible[first]!) ? first : -1;
}

function parseSlide(all: string[]): Slide {
  const code = findCodeLines(all);
  const note = all.findIndex((line, place) => !code[place] && line.startsWith("Note:"));
  const body = note < 0 ? all : all.slice(0, note);
  const notes = note < 0 ? "" : all.slice(note).join("\n").slice(5).trim();
  const columns = inColumns(body);
  const at = body.findIndex((line, place) => !code[place] && !columns[place] && HEADING.test(line));
  const said = layoutAt(body);
  const wanted = body[said]?.slice(7).trim().toLowerCase() ?? "";
  const blocks = readBlocks(body.filter((_, place) => place !== at && place !== said));
  const layout = LAYOUTS.find((one) => one === wanted) ?? guessLayout(body[at] ?? "", blocks);
  return { heading: (body[at] ?? "").trim().replace(/^#+/, "").trim(), blocks, notes, layout };
}

/** Which lines belong to columns. */
function inColumns(all: string[]): boolean[] {
  const code = findCodeLines(all);
  let inside = false;
  return all.map((line, at) => {
    if (!inside && (code[at] || line.trim() !== "::: columns")) return false;
    inside = Boolean(code[at]) || line.trim() !== ":::";
    return true;
  });
}

/** The layout of a slide that names none: a first-order heading with text is a title, a heading alone is a section. */
function guessLayout(heading: string, blocks: Block[]): Layout {
  const isText = (block: Block) =>
    block.kind === "text" && !/^(\s*([-*+]|\d{1,9}[.)])([ \t]|$)|\s*\||\s{0,3}(```|~~~))/m.test(block.text);
  const isQuote = (block: Block) => block.kind === "text" && /^\s*>/m.test(block.text);
  if (/^\s*#\s/.test(heading) && blocks.every((block) => isText(block) && !isQuote(block))) return "title";
  if (heading && !blocks.length) return "section";
  return !heading && blocks.length === 1 && (isText(blocks[0]!) || blocks[0]!.kind === "picture") ? "center" : "plain";
}

function readBlocks(all: string[]): Block[] {
  const code = findCodeLines(all);
  const blocks: Block[] = [];
  let text: string[] = [];
  const flush = () => {
    if (text.some((line) => line.trim()))
      blocks.push({ kind: "text", text: text.join("\n").replace(/^\n+/, "").trimEnd() });
    text = [];
  };
  for (let at = 0; at < all.length; at++) {
    const found = code[at] === "inside" ? null : blockAt(all, code, at);
    if (found) {
      flush();
      blocks.push(found.block);
      at = found.end;
    } else text.push(all[at]!);
  }
  flush();
  return blocks;
}

/** A block that begins with this line and is not text, and its last line. */
function blockAt(all: string[], code: Code[], at: number): { block: Block; end: number } | null {
  const line = all[at]!.trim();
  const picture = PICTURE.exec(line);
  if (picture) return { block: { kind: "picture", words: picture[1]!, path: picture[2]! }, end: at };
  if (code[at]) return chartAt(all, code, at);
  if (line !== "::: columns") return null;
  const closing = all.findIndex((one, place) => place > at && !code[place] && one.trim() === ":::");
  const end = closing < 0 ? all.length : closing;
  return { block: { kind: "columns", columns: splitParts(all.slice(at + 1, end), "|||").map(readBlocks) }, end };
}

/** The chart in a fence, also in one that is never closed; its table, if it cannot be drawn. */
function chartAt(all: string[], code: Code[], at: number): { block: Block; end: number } | null {
  const found = CHART.exec(all[at]!.trim());
  if (!found) return null;
  const after = code.findIndex((one, place) => place > at && one !== "inside");
  const end = after < 0 ? all.length : after;
  const isClosed = end - 1 > at && findCodeLines([all[at]!, all[end - 1]!, ""])[2] === "";
  const inside = all.slice(at + 1, isClosed ? end - 1 : end).map((line) => line.trim());
  const drawn = parseChart(found[1] ?? "bar", inside);
  if (drawn) return { block: { kind: "chart", chart: drawn }, end: end - 1 };
  return inside.some((line) => line.startsWith("|"))
    ? { block: { kind: "text", text: inside.join("\n") }, end: end - 1 }
    : null;
}

function parseChart(name: string, all: string[]): ChartData | null {
  const rows = all
    .filter((line) => line.startsWith("|"))
    .map((line) =>
      line
        .replace(/^\||\|$/g, "")
        .split("|")
        .map((part) => part.trim()),
    );
  const [head = [], ...body] = rows.filter((row) => !row.every((part) => /^:?-+:?$/.test(part)));
  const kind = (["bar", "line", "area", "pie"] as const).find((one) => one === name);
  const series = head
    .slice(1)
    .map((words, at) => ({ name: stripInline(words), values: body.map((row) => parseNumber(row[at + 1])) }));
  if (!kind || !series.some((one) => one.values.some((figure) => figure !== null))) return null;
  const title = all.filter((line) => line && !line.startsWith("|")).join(" ");
  return { kind, title: stripInline(title), labels: body.map((row) => stripInline(row[0] ?? "")), series };
}

/** Text without emphasis, code marks and links. */
const stripInline = (text: string): string =>
  text.replace(
    INLINE,
    (_, code?: string, bold?: string, em?: string, words?: string) => code ?? bold ?? em ?? words ?? "",
  );

/** The number in a cell such as `1,200 t`, `−3.5` or `12 %`. */
function parseNumber(text: string | undefined): number | null {
  const found = /[-−+]?[\d., '_]*\d/.exec(stripInline(text ?? ""))?.[0];
  if (!found) return null;
  const digits = found.replace("−", "-").replace(/[ '_]/g, "");
  const plain =
    digits.includes(".") || /^[-+]?\d{1,3}(,\d{3})+$/.test(digits)
      ? digits.replaceAll(",", "")
      : digits.replace(",", ".");
  return Math.abs(Number(plain)) < 1e300 ? Number(plain) : null;
}
