/** Estimated heights of entries before they are drawn: better estimates avoid drawing entries outside of the view. */

import type { Item } from "../state/fold";

const PADDING = 16;
const LINE = 24;
const BETWEEN = 10; // an empty line
const LETTERS = 70; // of a line, about
const CARD = 46; // a use of a tool that is folded

const known = new WeakMap<Item, number>(); // it is requested for all entries, whenever one is added

export function likelyHeight(item: Item): number {
  const height = known.get(item) ?? computeHeight(item);
  known.set(item, height);
  return height;
}

function computeHeight(item: Item): number {
  if (item.kind === "ended") return PADDING + LINE;
  const cards = item.kind === "reply" ? item.calls.length * CARD : 2 * PADDING; // user messages have a box
  return PADDING + textHeight(item.text) + cards;
}

function textHeight(text: string): number {
  return text.split("\n").reduce((sum, line) => sum + (line ? Math.ceil(line.length / LETTERS) * LINE : BETWEEN), 0);
}
