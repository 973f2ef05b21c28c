/** Drafts survive a reload of the page. They belong to this window and user, and are removed at sign-out. */

import { app } from "./app";

const PLACE = "wick-drafts";

interface StoredDrafts {
  whose: string;
  drafts: Record<string, string>;
}

/** Load the drafts of that user. */
export function loadDrafts(whose: string): Record<string, string> {
  try {
    const stored = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}") as Partial<StoredDrafts>;
    return stored.whose === whose ? (stored.drafts ?? {}) : {};
  } catch {
    return {};
  }
}

export function saveDrafts(): () => void {
  let before = app.get().drafts;
  return app.subscribe(() => {
    const { drafts, me } = app.get();
    if (drafts === before) return;
    before = drafts;
    if (me && Object.keys(drafts).length) writeDrafts({ whose: me.id, drafts });
    else sessionStorage.removeItem(PLACE);
  });
}

function writeDrafts(what: StoredDrafts): void {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(what));
  } catch {
    sessionStorage.removeItem(PLACE); // the storage is full; an old value would be wrong
  }
}
