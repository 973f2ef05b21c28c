/** Open something on the canvas: a file of the agent's workspace, or a text out of an answer. */

import { app, patch } from "../state/app";
import { fenceName } from "./fences";
import { idOf, load, refresh } from "./keeping";
import { kindOf, viewsOf } from "./kind";
import { activate, add, canvas, fresh, type Place, remember, type Tab, tabOf, update } from "./tabs";

export interface How {
  before?: (now: string) => string | undefined; // what the file was, for a comparison
  show?: boolean; // open the panel, and bring the tab to the front
}

/** Open a file of the workspace of the agent that is talked to. */
export async function openFile(path: string, how: How = {}): Promise<void> {
  const { agent, thread } = app.get();
  const file: Place = { agent, path: path.replace(/^\.\//, ""), thread };
  const id = idOf(file);
  const show = how.show ?? true;
  if (show) patch({ panel: "canvas" });
  if (!tabOf(id)) {
    add(fresh(id, file.path.split("/").at(-1) ?? file.path, file), show);
    await load(id);
  } else {
    update(id, { file });
    if (show) activate(id);
    await refresh(id);
  }
  update(id, (tab) => compared(tab, how.before?.(tab.saved)));
}

function compared(tab: Tab, before: string | undefined): Tab {
  return before === undefined || before === tab.saved ? tab : { ...tab, versions: remember(tab, before) };
}

let texts = 0;

/** Open a text that is in no file; `word` is what stood after its fence. */
export function openText(name: string, text: string, word = "", how: How = {}): void {
  const show = how.show ?? true;
  if (show) patch({ panel: "canvas" });
  const called = name || fenceName(word);
  const same = canvas.get().tabs.find((tab) => !tab.file && tab.versions[0] === text);
  if (same) return show ? activate(same.id) : undefined;
  const kind = kindOf(called, text);
  add({ ...fresh(`text-${++texts}`, called, null), state: "ready", kind, view: viewsOf(kind)[0]!, text, saved: "", versions: [text] }, show);
}

export { canOpen } from "./fences";
