/** The part of a run's time that is looked at, in milliseconds after its beginning. */

export interface View {
  from: number;
  to: number;
}

const LEAST = 0.05; // milliseconds that are still distinguishable

export const wholeView = (end: number): View => ({ from: 0, to: end });

/** Closer, or further away, around a point; never beyond the run. */
export function zoomView(view: View, factor: number, end: number, around = (view.from + view.to) / 2): View {
  const width = Math.min(end, Math.max(LEAST, (view.to - view.from) * factor));
  const share = view.to > view.from ? (around - view.from) / (view.to - view.from) : 0.5;
  return clampView({ from: around - width * share, to: around + width * (1 - share) }, end);
}

export function panView(view: View, share: number, end: number): View {
  const by = (view.to - view.from) * share;
  return clampView({ from: view.from + by, to: view.to + by }, end);
}

/** A span with a little room around it. */
export function viewAround(from: number, ms: number, end: number): View {
  const room = Math.max(ms * 0.08, LEAST);
  return clampView({ from: from - room, to: from + ms + room }, end);
}

function clampView({ from, to }: View, end: number): View {
  const width = Math.min(to - from, end);
  const begin = Math.min(Math.max(0, from), end - width);
  return { from: begin, to: begin + width };
}

/** Position of a span in the view, in percent; null if it is outside. */
export function spanPosition(view: View, from: number, ms: number): { left: number; width: number } | null {
  const size = view.to - view.from;
  if (from > view.to || from + ms < view.from) return null;
  const left = Math.max(0, (from - view.from) / size);
  const right = Math.min(1, (from + ms - view.from) / size);
  return { left: left * 100, width: Math.max(0, right - left) * 100 };
}
