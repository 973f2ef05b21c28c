/** Edits of sent messages. The form of an edit takes the focus once: when the edit begins. */

import { app, openConversation, patchApp, setDraft } from "./app";
import type { UserMessage } from "./fold";

let edited = "";

const keyOf = (thread: string, seq: number): string => `edit ${thread} ${seq}`;

export function startEdit(message: UserMessage): void {
  edited = keyOf(app.get().thread, message.seq);
  setDraft(edited, message.text);
}

/** Return true once for an edit that has just started. */
export function takeFocus(thread: string, seq: number): boolean {
  const isNew = edited === keyOf(thread, seq);
  if (isNew) edited = "";
  return isNew;
}

/** Edit the last message of the user; return false without such a message, or while a run is active. */
export function editLast(): boolean {
  const { items, run } = openConversation(app.get());
  const last = items.findLast((item): item is UserMessage => item.kind === "user" && !item.by && item.seq > 0);
  if (!last || run) return false;
  startEdit(last);
  patchApp({ goal: last.seq });
  return true;
}
