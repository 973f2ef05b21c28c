/** Fenced code blocks of an answer: length and name for the canvas. Small, since the chat loads it. */

/** File extensions of fence languages that differ from the language. */
const FENCES: Record<string, string> = {
  python: "py", python3: "py", javascript: "js", typescript: "ts", markdown: "md", bash: "sh", shell: "sh", zsh: "sh", console: "sh", yaml: "yml", rust: "rs", ruby: "rb", golang: "go", "c++": "cpp", dockerfile: "Dockerfile", text: "txt", plaintext: "txt", mermaid: "mmd",
}; // prettier-ignore

export const OPEN_LINES = 15; // longer ones open automatically

/** True if a block is long enough for the canvas. */
export const canOpen = (text: string): boolean => text.trimEnd().split("\n").length > OPEN_LINES;

/** A name for a text that has none, from the word after its fence. */
export function fenceName(word: string): string {
  const end = FENCES[word.toLowerCase()] ?? (word.toLowerCase().replace(/[^\w]/g, "") || "txt");
  return end === "Dockerfile" ? end : `answer.${end}`;
}

export interface Fence {
  word: string;
  text: string;
}

/** The fenced pieces of an answer that are long enough for the canvas. */
export function longFences(answer: string): Fence[] {
  const found: Fence[] = [];
  const lines = answer.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const mark = /^\s{0,3}(`{3,}|~{3,})\s*([^\s`]*)/.exec(lines[at]!);
    if (!mark) continue;
    const end = lines.findIndex(
      (line, place) => place > at && line.trim().startsWith(mark[1]!) && !line.trim().replace(/[`~]/g, ""),
    );
    const until = end < 0 ? lines.length : end;
    if (until - at - 1 > OPEN_LINES)
      found.push({ word: mark[2] ?? "", text: `${lines.slice(at + 1, until).join("\n")}\n` });
    at = until;
  }
  return found;
}
