/** A slide deck, read from the Markdown that the skill `slides` writes. */

export interface ChartData {
  kind: "bar" | "line" | "area" | "pie";
  title: string;
  labels: string[];
  series: { name: string; values: (number | null)[] }[];
}

export type Block = { kind: "text"; text: string } | { kind: "chart"; chart: ChartData } | { kind: "columns"; columns: string[] };

export interface Slide {
  heading: string;
  blocks: Block[];
  notes: string;
  layout: string; // title, section, columns or plain
}

export interface Deck {
  title: string;
  author: string;
  theme: string;
  slides: Slide[];
}

const CHART = /^```chart (\w+)\s*$/;

export function isDeck(text: string): boolean {
  return /^---\s*$/m.test(text) && /^#{1,2} /m.test(text);
}

export function readDeck(text: string): Deck {
  const lines = text.replace(/\r\n/g, "\n").split("\n");
  const { fields, rest } = frontMatter(lines);
  const slides = split(rest).filter((part) => part.some((line) => line.trim())).map(slide);
  return { title: fields["title"] ?? slides[0]?.heading ?? "", author: fields["author"] ?? "", theme: fields["theme"] ?? "plain", slides };
}

function frontMatter(lines: string[]): { fields: Record<string, string>; rest: string[] } {
  if (lines[0]?.trim() !== "---") return { fields: {}, rest: lines };
  const end = lines.findIndex((line, at) => at > 0 && line.trim() === "---");
  const inside = lines.slice(1, end < 0 ? 0 : end);
  if (end < 0 || !inside.every((line) => !line.trim() || /^[\w-]+:/.test(line))) return { fields: {}, rest: lines };
  const fields = inside.filter((line) => line.includes(":")).map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim().replace(/^["']|["']$/g, "")];
  });
  return { fields: Object.fromEntries(fields) as Record<string, string>, rest: lines.slice(end + 1) };
}

/** The slides stand between lines of three dashes, which do not count inside of code. */
function split(lines: string[]): string[][] {
  const parts: string[][] = [[]];
  let fence = "";
  for (const line of lines) {
    const mark = /^(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (mark && (!fence || mark.startsWith(fence))) fence = fence ? "" : mark;
    if (!fence && line.trim() === "---") parts.push([]);
    else parts.at(-1)!.push(line);
  }
  return parts;
}

function slide(lines: string[]): Slide {
  const note = lines.findIndex((line) => /^Notes?:/.test(line));
  const body = note < 0 ? lines : lines.slice(0, note);
  const notes = note < 0 ? "" : lines.slice(note).join("\n").replace(/^Notes?:\s*/, "").trim();
  const at = body.findIndex((line) => /^#{1,2} /.test(line));
  const heading = at < 0 ? "" : body[at]!.replace(/^#+ /, "").trim();
  const top = at >= 0 && body[at]!.startsWith("# ");
  const blocks = readBlocks(body.filter((_, place) => place !== at));
  const columns = blocks.some((block) => block.kind === "columns");
  return { heading, blocks, notes, layout: top ? "title" : columns ? "columns" : "plain" };
}

function readBlocks(lines: string[]): Block[] {
  const blocks: Block[] = [];
  let text: string[] = [];
  const flush = () => {
    if (text.some((line) => line.trim())) blocks.push({ kind: "text", text: text.join("\n").trim() });
    text = [];
  };
  for (let at = 0; at < lines.length; at++) {
    const kind = CHART.exec(lines[at]!)?.[1];
    const end = kind || lines[at]!.trim() === "::: columns" ? lines.findIndex((line, place) => place > at && /^(```|:::)\s*$/.test(line)) : -1;
    if (end < 0) {
      text.push(lines[at]!);
      continue;
    }
    flush();
    const inside = lines.slice(at + 1, end);
    blocks.push(kind ? { kind: "chart", chart: chart(kind, inside) } : { kind: "columns", columns: inside.join("\n").split(/^\|\|\|\s*$/m) });
    at = end;
  }
  flush();
  return blocks;
}

function chart(kind: string, lines: string[]): ChartData {
  const rows = lines.filter((line) => line.trim().startsWith("|")).map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((part) => part.trim()));
  const [head = [], ...body] = rows.filter((row) => !row.every((part) => /^:?-+:?$/.test(part)));
  const title = lines.filter((line) => line.trim() && !line.trim().startsWith("|")).join(" ").trim();
  const known = ["bar", "line", "area", "pie"] as const;
  const series = head.slice(1).map((name, at) => ({ name, values: body.map((row) => value(row[at + 1])) }));
  return { kind: known.find((one) => one === kind) ?? "bar", title, labels: body.map((row) => row[0] ?? ""), series };
}

function value(text: string | undefined): number | null {
  const plain = (text ?? "").replace(/[^\d.eE+-]/g, "");
  return plain && Number.isFinite(Number(plain)) ? Number(plain) : null;
}
