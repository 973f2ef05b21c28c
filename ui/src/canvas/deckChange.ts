/** A deck with another theme or layout: only those lines change. */

import { isBlank } from "./comments";
import { frontMatter, type Layout, layoutAt, LAYOUTS, linesOf, splitParts, type Theme } from "./deck";

/** The same document with another theme. */
export function withTheme(text: string, theme: Theme): string {
  const all = linesOf(text);
  const { rest } = frontMatter(all);
  const front = all.slice(0, all.length - rest.length);
  if (!front.length) return `---\ntheme: ${theme}\n---\n\n${text}`;
  const kept = front.slice(1, -1).filter((line) => !/^theme:/.test(line));
  return ["---", ...kept, `theme: ${theme}`, "---", ...rest].join("\n");
}

/** The document with another layout of one slide; empty removes it. */
export function withLayout(text: string, number: number, layout: Layout | ""): string {
  const all = linesOf(text);
  const { rest } = frontMatter(all);
  const parts = splitParts(rest);
  const at = parts.map((part, place) => (isBlank(part) ? -1 : place)).filter((place) => place >= 0)[number];
  if (at === undefined) return text;
  const said = layoutAt(parts[at]!);
  const kept = parts[at]!.filter((_, place) => place !== said);
  const first = kept.findIndex((line) => line.trim());
  parts[at] = layout ? kept.toSpliced(Math.max(0, first), 0, `Layout: ${layout}`) : kept;
  return [
    ...all.slice(0, all.length - rest.length),
    ...parts.flatMap((part, place) => (place ? ["---", ...part] : part)),
  ].join("\n");
}

/** The layout that a slide asks for by name. */
export function layoutComment(text: string, number: number): Layout | "" {
  const part = splitParts(frontMatter(linesOf(text)).rest).filter((one) => !isBlank(one))[number] ?? [];
  const said = part[layoutAt(part)]?.slice(7).trim().toLowerCase();
  return LAYOUTS.find((one) => one === said) ?? "";
}
