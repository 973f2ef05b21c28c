/** Find code lines of Markdown: fence lines and lines inside. */

export type Code = "" | "opens" | "inside";

export function findCodeLines(lines: string[]): Code[] {
  let fence = "";
  return lines.map((line) => {
    const mark = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    const code = fence ? "inside" : mark ? "opens" : "";
    if (mark && (!fence || mark.startsWith(fence))) fence = fence ? "" : mark;
    return code;
  });
}
