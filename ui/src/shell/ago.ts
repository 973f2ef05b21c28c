/** Relative times. */

export function formatAgo(at: number, now = Date.now() / 1000): string {
  const seconds = Math.max(0, now - at);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString();
}

/** Group by day of the last change; the order is kept. */
export function groupByDay<T extends { updated: number }>(all: T[], now = new Date()): [string, T[]][] {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime() / 1000;
  const name = (at: number) =>
    at >= today ? "Today" : at >= today - 86_400 ? "Yesterday" : at >= today - 6 * 86_400 ? "This week" : "Earlier";
  const found = new Map<string, T[]>();
  for (const one of all) found.set(name(one.updated), [...(found.get(name(one.updated)) ?? []), one]);
  return [...found];
}
