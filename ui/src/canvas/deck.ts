/** A slide deck, read from the Markdown that the skill `slides` writes. */

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
  const { fields, rest } = frontMatter(lines(text));
  const parts = split(rest).filter((part) => part.some((line) => line.trim()));
  const headed = parts.filter((part) => HEADING.test(part.find((line) => line.trim() && !/^Layout:/.test(line)) ?? ""));
  return parts.length > 1 && (fields["theme"] !== undefined || headed.length >= parts.length * 0.6);
}

export function readDeck(text: string): Deck {
  const { fields, rest } = frontMatter(lines(text));
  const slides = split(rest).filter((part) => part.some((line) => line.trim())).map(slide);
  const theme = THEMES.find((one) => one === fields["theme"]) ?? "plain";
  return { title: fields["title"] ?? slides[0]?.heading ?? "", author: fields["author"] ?? "", theme, slides };
}

/** The same document with another theme. */
export function withTheme(text: string, theme: Theme): string {
  const all = lines(text);
  const { rest } = frontMatter(all);
  const front = all.slice(0, all.length - rest.length);
  if (!front.length) return `---\ntheme: ${theme}\n---\n\n${text}`;
  const kept = front.slice(1, -1).filter((line) => !/^theme:/.test(line));
  return ["---", ...kept, `theme: ${theme}`, "---", ...rest].join("\n");
}

const lines = (text: string): string[] => text.replace(/^\uFEFF/, "").replace(/\r\n/g, "\n").split("\n");

function frontMatter(all: string[]): { fields: Record<string, string>; rest: string[] } {
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

/** The slides stand between lines of three dashes, which do not count inside of code. */
function split(all: string[]): string[][] {
  const parts: string[][] = [[]];
  let fence = "";
  for (const line of all) {
    const mark = /^(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (mark && (!fence || mark.startsWith(fence))) fence = fence ? "" : mark;
    if (!fence && line.trim() === "---") parts.push([]);
    else parts.at(-1)!.push(line);
  }
  return parts;
}

function slide(all: string[]): Slide {
  const note = all.findIndex((line) => /^Notes?:/.test(line));
  const body = note < 0 ? all : all.slice(0, note);
  const notes = note < 0 ? "" : all.slice(note).join("\n").replace(/^Notes?:\s*/, "").trim();
  const at = body.findIndex((line) => HEADING.test(line));
  const said = body.findIndex((line) => /^Layout:/.test(line));
  const wanted = said < 0 ? "" : body[said]!.slice(7).trim().toLowerCase();
  const blocks = readBlocks(body.filter((_, place) => place !== at && place !== said));
  const layout = LAYOUTS.find((one) => one === wanted) ?? guessed(body[at] ?? "", blocks);
  return { heading: (body[at] ?? "").replace(/^#+\s+/, "").trim(), blocks, notes, layout };
}

/** A slide that says nothing of its layout: a heading of the first order is a title, one without anything is a section. */
function guessed(heading: string, blocks: Block[]): Layout {
  const plain = blocks.every((block) => block.kind === "text" && !/^([-*+]|\d+[.)])\s|^\|/m.test(block.text));
  if (heading.startsWith("# ") && plain && blocks.length < 2) return "title";
  if (heading && !blocks.length) return "section";
  return !heading && blocks.length === 1 ? "center" : "plain";
}

function readBlocks(all: string[]): Block[] {
  const blocks: Block[] = [];
  let text: string[] = [];
  let fence = "";
  const flush = () => {
    if (text.some((line) => line.trim())) blocks.push({ kind: "text", text: text.join("\n").replace(/^\n+/, "").trimEnd() });
    text = [];
  };
  for (let at = 0; at < all.length; at++) {
    const found = fence ? null : special(all, at);
    if (found) {
      flush();
      blocks.push(found.block);
      at = found.end;
      continue;
    }
    const mark = /^(`{3,}|~{3,})/.exec(all[at]!)?.[1] ?? "";
    if (mark && (!fence || mark.startsWith(fence))) fence = fence ? "" : mark;
    text.push(all[at]!);
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

/** The same document with another layout of one slide; nothing said is as it comes. */
export function withLayout(text: string, number: number, layout: Layout | ""): string {
  const all = lines(text);
  const { rest } = frontMatter(all);
  const parts = split(rest);
  const filled = parts.map((part, at) => ({ part, at })).filter(({ part }) => part.some((line) => line.trim()));
  const at = filled[number]?.at;
  if (at === undefined) return text;
  const kept = parts[at]!.filter((line) => !/^Layout:/.test(line));
  const first = kept.findIndex((line) => line.trim());
  parts[at] = layout ? kept.toSpliced(first, 0, `Layout: ${layout}`) : kept;
  return [...all.slice(0, all.length - rest.length), ...parts.flatMap((part, place) => (place ? ["---", ...part] : part))].join("\n");
}

/** The layout that a slide asks for by name. */
export function layoutSaid(text: string, number: number): Layout | "" {
  const part = split(frontMatter(lines(text)).rest).filter((one) => one.some((line) => line.trim()))[number];
  const said = part?.find((line) => /^Layout:/.test(line))?.slice(7).trim().toLowerCase();
  return LAYOUTS.find((one) => one === said) ?? "";
}
