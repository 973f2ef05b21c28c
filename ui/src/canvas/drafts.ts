/** Tabs of files that the agent is writing right now. */

import { app } from "../state/app";
import { showPanel } from "../state/layout";
import { createStore, useStore } from "../state/store";
import type { Draft } from "./draftArgs";
import { idOf, loadTab, refreshTab } from "./tabFiles";
import { activateTab, addTab, closeTab, createTab, tabOf } from "./tabs";

const drafts = createStore<Record<string, string>>({}); // the text so far, by tab

const opened = new Set<string>(); // tabs that were opened for a draft

export const useWriting = (tab: string): string | undefined => useStore(drafts, (state) => state[tab]);

/** Show drafts in their tabs; a tab shows its file again when the draft ends. */
export function putDrafts(found: Draft[], mayShow: () => boolean): void {
  const { agent, thread } = app.get();
  const before = drafts.get();
  const now: Record<string, string> = {};
  for (const { path, text } of found) {
    const file = { agent, path: path.replace(/^\.\//, ""), thread };
    const id = idOf(file);
    now[id] = text;
    if (before[id] !== undefined) continue;
    const show = mayShow();
    if (!tabOf(id)) {
      addTab(createTab(id, file.path.split("/").at(-1)!, file), show);
      opened.add(id);
    }
    if (!show) continue;
    showPanel("canvas");
    activateTab(id);
  }
  drafts.set(() => now);
  for (const id of Object.keys(before)) if (now[id] === undefined) void endDraft(id);
}

async function endDraft(id: string): Promise<void> {
  if (!opened.delete(id)) return refreshTab(id);
  await loadTab(id);
  if (tabOf(id)?.state === "failed") closeTab(id); // the call was denied: there is no such file
}
