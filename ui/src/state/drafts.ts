/** What is being written outlives a reload of the page. It is this window's and this user's, and goes when they sign out. */

import { app } from "./app";

const PLACE = "wick-drafts";

interface Kept {
  whose: string;
  drafts: Record<string, string>;
}

/** What that user was writing here. */
export function keptDrafts(whose: string): Record<string, string> {
  try {
    const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}") as Partial<Kept>;
    return kept.whose === whose ? (kept.drafts ?? {}) : {};
  } catch {
    return {};
  }
}

export function keepDrafts(): () => void {
  let before = app.get().drafts;
  return app.subscribe(() => {
    const { drafts, me } = app.get();
    if (drafts === before) return;
    before = drafts;
    if (me && Object.keys(drafts).length) keep({ whose: me.id, drafts });
    else sessionStorage.removeItem(PLACE);
  });
}

function keep(what: Kept): void {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(what));
  } catch {
    sessionStorage.removeItem(PLACE); // there is no room; what is old would be wrong
  }
}
