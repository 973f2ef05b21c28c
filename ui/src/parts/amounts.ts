/** Numbers as people read them. */

const WHOLE = new Intl.NumberFormat("en");

export const formatCount = (amount: number): string => WHOLE.format(Math.round(amount));

/** A few thousand are 3.2k. */
export function formatShort(amount: number): string {
  if (amount < 10_000) return formatCount(amount);
  return amount < 1_000_000 ? `${trimZero(amount / 1000)}k` : `${trimZero(amount / 1_000_000)}M`;
}

const trimZero = (amount: number): string => amount.toFixed(amount < 100 ? 1 : 0).replace(/\.0$/, "");

/** Dollars with significant digits. */
export function formatDollars(amount: number): string {
  if (amount === 0) return "$0";
  return amount < 0.01 ? `$${amount.toPrecision(2)}` : `$${amount.toFixed(2)}`;
}

export const formatSeconds = (amount: number): string =>
  amount < 120 ? `${Math.round(amount)} s` : `${Math.round(amount / 60)} min`;

export const formatPlural = (amount: number, one: string, many = `${one}s`): string =>
  `${formatCount(amount)} ${amount === 1 ? one : many}`;
