/** Numbers on an axis. */

/** Round numbers from just below the least to just above the greatest; zero is among them. */
export function axisTicks(least: number, most: number, count = 5): number[] {
  const [low, high] = [Math.min(0, least), Math.max(0, most)];
  if (low === high) return [0, 1];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((one) => one * power >= rough * 0.999) ?? 10) * power;
  const from = Math.floor(low / step + 1e-9);
  const to = Math.ceil(high / step - 1e-9);
  return Array.from({ length: to - from + 1 }, (_, at) => Number(((from + at) * step).toPrecision(12)));
}

/** A number as it fits beside an axis: 1.2k, 35M, 0.004. */
export function formatBrief(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(1);
  for (const [unit, sign] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (size >= unit * (unit === 1e3 ? 10 : 1)) return `${Number((value / unit).toPrecision(3))}${sign}`;
  }
  return String(Number(value.toPrecision(4)));
}

/** Choose labels so that they do not overlap. */
export function labelStep(count: number, room: number): number {
  return Math.max(1, Math.ceil(count / Math.max(1, room)));
}
