/** HTML comments in Markdown: slides do not show them. */

const FENCE = /^\s{0,3}(`{3,}|~{3,})/;

/** Return each line without its comments, or null if nothing is left. Comments in code and unclosed ones stay. */
export function removeComments(lines: string[]): (string | null)[] {
  const last = lines.findLastIndex((line) => line.includes("-->"));
  let fence = "";
  let inside = false;
  return lines.map((line, at) => {
    const mark = inside ? "" : (FENCE.exec(line)?.[1] ?? "");
    if (fence || mark) {
      fence = fence && mark.startsWith(fence) && mark ? "" : fence || mark;
      return line;
    }
    const found = removeComment(line, inside, at < last);
    inside = found.inside;
    if (found.kept === line) return line;
    return found.kept.trim() ? found.kept.trimEnd() : null;
  });
}

/** Return the rest of a line, and true if a comment continues after it. */
function removeComment(line: string, begun: boolean, closesLater: boolean): { kept: string; inside: boolean } {
  let kept = "";
  let at = 0;
  let inside = begun;
  for (;;) {
    if (inside) {
      const end = line.indexOf("-->", at);
      if (end < 0) return { kept, inside };
      at = end + 3;
    }
    const opens = findComment(line, at);
    if (opens < 0) return { kept: kept + line.slice(at), inside: false };
    const end = line.indexOf("-->", opens + 2);
    if (end < 0 && !closesLater) return { kept: kept + line.slice(at), inside: false };
    kept += line.slice(at, opens);
    at = end < 0 ? line.length : end + 3;
    inside = end < 0;
  }
}

/** Return the start of a comment outside of code in a line; -1 if there is none. */
function findComment(line: string, from: number): number {
  const marks = /`[^`]+`|<!--/g;
  marks.lastIndex = from;
  for (let found = marks.exec(line); found; found = marks.exec(line)) if (found[0] === "<!--") return found.index;
  return -1;
}

/** The lines that are shown. */
export const visibleLines = (lines: string[]): string[] => removeComments(lines).filter((line) => line !== null);

/** True if none of these lines is shown. */
export const isBlank = (lines: string[]): boolean => visibleLines(lines).every((line) => !line.trim());
