/** Which lines of Markdown are code: each that opens a fence, and each that stands inside of one or closes it. */

export type Code = "" | "opens" | "inside";

export function fenced(lines: string[]): Code[] {
  let fence = "";
  return lines.map((line) => {
    const mark = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    const code = fence ? "inside" : mark ? "opens" : "";
    if (mark && (!fence || mark.startsWith(fence))) fence = fence ? "" : mark;
    return code;
  });
}
