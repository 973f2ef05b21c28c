/** A fenced block that its text cannot end. */
export function fence(text: string, word = ""): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const marks = "`".repeat(longest + 1);
  return `${marks}${word}\n${text}${text.endsWith("\n") ? "" : "\n"}${marks}`;
}
