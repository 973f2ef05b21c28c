/** A slide deck, read from the Markdown that the skill `slides` writes. */

import { isBlank, shown, uncommented } from "./comments";
import { fenced } from "./fenced";

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

const CHART = /^```chart (\w+)\s*$/;
const PICTURE = /^!\[([^\]]*)\]\(([^)\s]+)\)$/;
const HEADING = /^#{1,6}\s/;

/** Whether a document is a deck: it has several parts between lines of dashes, and they begin with headings. */
export function isDeck(text: string): boolean {
  const { fields, rest } = frontMatter(linesOf(text));
  const parts = split(rest).map(shown).filter((part) => part.some((line) => line.trim()));
  const headed = parts.filter((part) => HEADING.test(part.find((line) => line.trim() && !/^Layout:/.test(line)) ?? ""));
  return parts.length > 1 && (fields["theme"] !== undefined || headed.length >= parts.length * 0.6);
}

export function readDeck(text: string): Deck {
  const { fields, rest } = frontMatter(linesOf(text));
  const slides = split(rest).filter((part) => !isBlank(part)).map((part) => slide(shown(part)));
  const theme = THEMES.find((one) => one === fields["theme"]) ?? "plain";
  return { title: fields["title"] ?? slides[0]?.heading ?? "", author: fields["author"] ?? "", theme, slides };
}

export const linesOf = (text: string): string[] => text.replace(/^\uFEFF/, "").replace(/\r\n/g, "\n").split("\n");

export function frontMatter(all: string[]): { fields: Record<string, string>; rest: string[] } {
  if (all[0]?.trim() !== "---") return { fields: {}, rest: all };
  const end = all.findIndex((line, at) => at > 0 && line.trim() === "---");
  const inside = all.slice(1, end < 0 ? 0 : end);
  if (end < 0 || !inside.every((line) => !line.trim() || /^[\w-]+:/.test(line))) return { fields: {}, rest: all };
  const fields = inside.filter((line) => line.includes(":")).map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim().replace(/^["']|["']$/g, "")];
  });
  return { fields: Object.fromEntries(fields) as Record<string, string>, rest: all.slice(end + 1) };
}

/** The slides stand between lines of three dashes, which do not count inside of code and of comments. */
export function split(all: string[]): string[][] {
  const visible = uncommented(all);
  const code = fenced(visible.map((line) => line ?? ""));
  const parts: string[][] = [[]];
  for (const [at, line] of all.entries()) {
    if (!code[at] && visible[at] !== null && line.trim() === "---") parts.push([]);
    else parts.at(-1)!.push(line);
  }
  return parts;
}

/** Where a part of the document says its layout, which is in its first line; -1 if it does not. */
export function layoutAt(part: string[]): number {
  const visible = uncommented(part);
  const first = visible.findIndex((line) => line?.trim());
  return first >= 0 && /^Layout:/.test(visible[first]!) ? first : -1;
}

function slide(all: string[]): Slide {
  const code = fenced(all);
  const note = all.findIndex((line, place) => !code[place] && line.startsWith("Note:"));
  const body = note < 0 ? all : all.slice(0, note);
  const notes = note < 0 ? "" : all.slice(note).join("\n").slice(5).trim();
  const at = body.findIndex((line, place) => !code[place] && HEADING.test(line));
  const said = layoutAt(body);
  const wanted = body[said]?.slice(7).trim().toLowerCase() ?? "";
  const blocks = readBlocks(body.filter((_, place) => place !== at && place !== said));
  const layout = LAYOUTS.find((one) => one === wanted) ?? guessed(body[at] ?? "", blocks);
  return { heading: (body[at] ?? "").replace(/^#+\s+/, "").trim(), blocks, notes, layout };
}

/** A slide that says nothing of its layout: a heading of the first order is a title, one without anything is a section. */
function guessed(heading: string, blocks: Block[]): Layout {
  const isPlain = (block: Block) => block.kind === "text" && !/^\s*(([-*+]|\d+[.)])\s|\||```|~~~)/m.test(block.text);
  if (heading.startsWith("# ") && blocks.every(isPlain) && blocks.length < 2) return "title";
  if (heading && !blocks.length) return "section";
  return !heading && blocks.length === 1 && (isPlain(blocks[0]!) || blocks[0]!.kind === "picture") ? "center" : "plain";
}

function readBlocks(all: string[]): Block[] {
  const code = fenced(all);
  const blocks: Block[] = [];
  let text: string[] = [];
  const flush = () => {
    if (text.some((line) => line.trim())) blocks.push({ kind: "text", text: text.join("\n").replace(/^\n+/, "").trimEnd() });
    text = [];
  };
  for (let at = 0; at < all.length; at++) {
    const found = code[at] === "inside" ? null : special(all, at);
    if (found) {
      flush();
      blocks.push(found.block);
      at = found.end;
    } else text.push(all[at]!);
  }
  flush();
  return blocks;
}

/** A block that begins with this line and is no text, and its last line. */
function special(all: string[], at: number): { block: Block; end: number } | null {
  const line = all[at]!.trim();
  const picture = PICTURE.exec(line);
  if (picture) return { block: { kind: "picture", words: picture[1]!, path: picture[2]! }, end: at };
  const kind = CHART.exec(line)?.[1];
  if (!kind && line !== "::: columns") return null;
  const end = all.findIndex((one, place) => place > at && one.trim() === (kind ? "```" : ":::"));
  if (end < 0) return null;
  const inside = all.slice(at + 1, end);
  if (kind) return { block: { kind: "chart", chart: chart(kind, inside) }, end };
  return { block: { kind: "columns", columns: inside.join("\n").split(/^\|\|\|\s*$/m).map((part) => readBlocks(part.split("\n"))) }, end };
}

function chart(kind: string, all: string[]): ChartData {
  const rows = all.filter((line) => line.trim().startsWith("|")).map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((part) => part.trim()));
  const [head = [], ...body] = rows.filter((row) => !row.every((part) => /^:?-+:?$/.test(part)));
  const title = all.filter((line) => line.trim() && !line.trim().startsWith("|")).join(" ").trim();
  const known = ["bar", "line", "area", "pie"] as const;
  const series = head.slice(1).map((name, at) => ({ name, values: body.map((row) => value(row[at + 1])) }));
  return { kind: known.find((one) => one === kind) ?? "bar", title, labels: body.map((row) => row[0] ?? ""), series };
}

/** The number in a cell such as `1,200 t`, `−3.5` or `12 %`. */
function value(text: string | undefined): number | null {
  const found = /[-−+]?[\d., '_]*\d/.exec(text ?? "")?.[0];
  if (!found) return null;
  const digits = found.replace("−", "-").replace(/[ '_]/g, "");
  const plain = digits.includes(".") || /^[-+]?\d{1,3}(,\d{3})+$/.test(digits) ? digits.replaceAll(",", "") : digits.replace(",", ".");
  return Number.isFinite(Number(plain)) ? Number(plain) : null;
}
