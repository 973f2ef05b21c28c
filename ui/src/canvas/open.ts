/** Open something on the canvas: a file of the agent's workspace, or a text out of an answer. */

import { app } from "../state/app";
import type { Conversation } from "../state/fold";
import { showPanel } from "../state/layout";
import { fenceName } from "./fences";
import { idOf, loadTab, refreshTab } from "./tabFiles";
import { kindOf, viewsOf } from "./kind";
import {
  activateTab,
  addTab,
  canvas,
  createTab,
  type Place,
  rememberVersion,
  type Tab,
  tabOf,
  updateTab,
} from "./tabs";
import { writtenFiles } from "./watch";

export interface How {
  before?: (now: string) => string | undefined; // the old file content, for a comparison
  show?: boolean; // open the panel, and bring the tab to the front
}

/** Open a file of the workspace of the agent that is talked to. */
export async function openFile(path: string, how: How = {}): Promise<void> {
  const { agent, thread } = app.get();
  const file: Place = { agent, path: path.replace(/^\.\//, ""), thread };
  const id = idOf(file);
  const show = how.show ?? true;
  if (show) showPanel("canvas");
  if (!tabOf(id)) {
    addTab(createTab(id, file.path.split("/").at(-1) ?? file.path, file), show);
    await loadTab(id);
  } else {
    updateTab(id, { file });
    if (show) activateTab(id);
    await refreshTab(id);
  }
  updateTab(id, (tab) => withComparison(tab, how.before?.(tab.saved)));
}

const MOST_WRITTEN = 5; // tabs to begin with

/** Open the files that an agent wrote last in a conversation. */
export async function openWritten(talk: Conversation): Promise<void> {
  const paths = writtenFiles(talk.items).slice(-MOST_WRITTEN);
  if (!canvas.get().tabs.length) await openFiles(paths, paths.at(-1) ?? "");
}

/** Open files as they were before a reload; the one that was shown comes to the front. */
export async function openFiles(paths: string[], shown: string): Promise<void> {
  for (const path of paths) await openFile(path, { show: false });
  const id = idOf({ agent: app.get().agent, path: shown, thread: "" });
  if (tabOf(id)) activateTab(id);
}

function withComparison(tab: Tab, before: string | undefined): Tab {
  return before === undefined || before === tab.saved ? tab : { ...tab, versions: rememberVersion(tab, before) };
}

let texts = 0;

/** Open a text without a file; `word` is the language of its fence. */
export function openText(name: string, text: string, word = "", how: How = {}): void {
  const show = how.show ?? true;
  if (show) showPanel("canvas");
  const called = name || fenceName(word);
  const same = canvas.get().tabs.find((tab) => !tab.file && tab.versions[0] === text);
  if (same) return show ? activateTab(same.id) : undefined;
  const kind = kindOf(called, text);
  addTab(
    {
      ...createTab(`text-${++texts}`, called, null),
      state: "ready",
      kind,
      view: viewsOf(kind)[0]!,
      text,
      saved: "",
      versions: [text],
    },
    show,
  );
}

export { canOpen } from "./fences";
