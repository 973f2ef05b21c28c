/** Numbers as people read them. */

const WHOLE = new Intl.NumberFormat("en");

export const count = (amount: number): string => WHOLE.format(Math.round(amount));

/** A few thousand are 3.2k. */
export function short(amount: number): string {
  if (amount < 10_000) return count(amount);
  return amount < 1_000_000 ? `${trimmed(amount / 1000)}k` : `${trimmed(amount / 1_000_000)}M`;
}

const trimmed = (amount: number): string => amount.toFixed(amount < 100 ? 1 : 0).replace(/\.0$/, "");

/** Dollars with as many digits as say something. */
export function dollars(amount: number): string {
  if (amount === 0) return "$0";
  return amount < 0.01 ? `$${amount.toPrecision(2)}` : `$${amount.toFixed(2)}`;
}

export const seconds = (amount: number): string => (amount < 120 ? `${Math.round(amount)} s` : `${Math.round(amount / 60)} min`);

export const plural = (amount: number, one: string, many = `${one}s`): string => `${count(amount)} ${amount === 1 ? one : many}`;
