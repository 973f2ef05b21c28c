/** The text that is selected on the canvas. */

import { createStore, useStore } from "../state/store";

export interface Selected {
  tab: string;
  text: string;
  from: number; // its place in the text of the tab; -1 if it is not known
}

const store = createStore<Selected | null>(null);

export const selected = store.get;

export const useSelected = (tab: string): Selected | null =>
  useStore(store, (state) => (state?.tab === tab ? state : null));

export function setSelected(now: Selected | null): void {
  store.set((old) => (old && now && old.tab === now.tab && old.text === now.text && old.from === now.from ? old : now));
}

/** The only place of a part in a text; -1 if it is missing, or occurs several times. */
export function findOnce(text: string, part: string): number {
  const at = text.indexOf(part);
  return at >= 0 && text.indexOf(part, at + 1) < 0 ? at : -1;
}
