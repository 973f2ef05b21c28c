/** A line diff of two texts. */

export interface Line {
  kind: "same" | "gone" | "new" | "skipped";
  text: string;
}

const MOST_CELLS = 4_000_000; // beyond this a comparison costs more than it shows

export function diff(old: string, now: string, around = 3): Line[] {
  const [a, b] = [splitLines(old), splitLines(now)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [left, right] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const same = (part: string[]): Line[] => part.map((text) => ({ kind: "same", text }));
  return shortenContext(
    [...same(a.slice(0, head)), ...diffMiddle(left, right), ...same(a.slice(a.length - tail))],
    around,
  );
}

export const splitLines = (text: string): string[] => (text ? text.replace(/\n$/, "").split("\n") : []);

function diffMiddle(a: string[], b: string[]): Line[] {
  const gone = (part: string[]): Line[] => part.map((text) => ({ kind: "gone", text }));
  const come = (part: string[]): Line[] => part.map((text) => ({ kind: "new", text }));
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS) return [...gone(a), ...come(b)];
  const length = commonLengths(a, b);
  const made: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      made.push({ kind: "same", text: a[i++]! });
      j++;
    } else if (length[i + 1]![j]! >= length[i]![j + 1]!) made.push({ kind: "gone", text: a[i++]! });
    else made.push({ kind: "new", text: b[j++]! });
  }
  return [...made, ...gone(a.slice(i)), ...come(b.slice(j))];
}

/** For each pair of places, how many lines the rests have in common. */
function commonLengths(a: string[], b: string[]): Uint32Array[] {
  const length = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i]![j] = a[i] === b[j] ? length[i + 1]![j + 1]! + 1 : Math.max(length[i + 1]![j]!, length[i]![j + 1]!);
    }
  }
  return length;
}

/** Drop lines far from any change. */
function shortenContext(all: Line[], around: number): Line[] {
  const near = all.map((_, at) =>
    all.slice(Math.max(0, at - around), at + around + 1).some((line) => line.kind !== "same"),
  );
  const made: Line[] = [];
  for (const [at, line] of all.entries()) {
    if (near[at]) made.push(line);
    else if (made.at(-1)?.kind === "skipped")
      made[made.length - 1] = { kind: "skipped", text: String(Number(made.at(-1)!.text) + 1) };
    else made.push({ kind: "skipped", text: "1" });
  }
  return made;
}

/** The lines of a unified diff, without its head. The lines between its parts are counted as unchanged. */
export function readUnified(text: string): Line[] {
  const kinds: Record<string, Line["kind"]> = { "-": "gone", "+": "new", " ": "same" };
  const lines: Line[] = [];
  let passed = 0; // lines of the old text
  for (const line of splitLines(text)) {
    if (/^(---|\+\+\+) [ab]\//.test(line) || line.startsWith("\\")) continue;
    const part = /^@@ -(\d+)(,0)?/.exec(line);
    if (part) {
      const first = Number(part[1]) - (part[2] ? 0 : 1);
      if (first > passed) lines.push({ kind: "skipped", text: String(first - passed) });
      passed = first;
      continue;
    }
    const kind = kinds[line[0] ?? ""];
    lines.push(kind ? { kind, text: line.slice(1) } : { kind: "same", text: line });
    if (kind === "gone" || kind === "same") passed += 1;
  }
  return lines;
}
