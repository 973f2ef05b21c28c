/** Numbers on an axis. */

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
