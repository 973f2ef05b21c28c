/** Open results of the agent while it works: written files and long code blocks. */

import { app, openConversation } from "../state/app";
import { isNarrow, shownPanels } from "../state/layout";
import type { Call, Conversation, Item, Reply } from "../state/fold";
import { openDrafts } from "./draftArgs";
import { type Fence, longFences } from "./fences";

const WRITERS = new Set(["write_file", "edit_file"]);
const LOOK_BACK = 8; // items: older ones have been seen

export interface Written {
  path: string;
  before: (now: string) => string | undefined; // the old file content, for a comparison
}

export interface Made {
  files: Written[];
  texts: Fence[];
}

/** Seen items of one thread. */
export class Seen {
  private readonly keys = new Set<string>();
  private readonly known = new Map<string, string>(); // files as the conversation has them
  private readonly previous = new Map<string, string>(); // and as they were before that

  /** Everything that is there already. */
  skip(talk: Conversation): void {
    this.note(talk);
    for (const item of talk.items) {
      if (item.kind !== "reply" || item.open) continue;
      this.keys.add(item.key);
      for (const call of item.calls) if (call.ended) this.keys.add(call.id);
    }
  }

  /** New items in a conversation with an active run. */
  take(talk: Conversation): Made {
    this.note(talk);
    const replies = talk.items.slice(-LOOK_BACK).filter((item) => item.kind === "reply" && !item.open) as Reply[];
    const texts = replies.filter((reply) => this.isNew(reply.key)).flatMap((reply) => longFences(reply.text));
    const files = replies.flatMap((reply) => this.written(reply)).map((call) => this.file(call));
    return { files, texts };
  }

  private note(talk: Conversation): void {
    for (const [path, now] of Object.entries((talk.values["files"] ?? {}) as Record<string, unknown>)) {
      const old = this.known.get(path);
      if (typeof now !== "string" || old === now) continue;
      if (old !== undefined) this.previous.set(path, old);
      this.known.set(path, now);
    }
  }

  private written(reply: Reply): Call[] {
    return reply.calls.flatMap((call) => {
      const inside = (call.child?.items ?? []).flatMap((item: Item) =>
        item.kind === "reply" ? this.written(item) : [],
      );
      const counts =
        WRITERS.has(call.name) && call.state === "done" && call.ended > 0 && typeof call.args["path"] === "string";
      return counts && this.isNew(call.id) ? [...inside, call] : inside;
    });
  }

  private file(call: Call): Written {
    const path = String(call.args["path"]);
    const known = this.previous.get(path);
    return { path, before: (now) => known ?? (call.name === "edit_file" ? revertEdit(now, call.args) : undefined) };
  }

  private isNew(key: string): boolean {
    if (this.keys.has(key)) return false;
    this.keys.add(key);
    return true;
  }
}

/** The files that were written in a conversation, each once, in the order of the last write. */
export function writtenFiles(items: Item[]): string[] {
  const calls = items.flatMap((item) => (item.kind === "reply" ? item.calls : []));
  const done = calls.filter(
    (call) => WRITERS.has(call.name) && call.state === "done" && typeof call.args["path"] === "string",
  );
  const paths = done.map((call) => String(call.args["path"]).replace(/^\.\//, ""));
  return paths.filter((path, at) => paths.lastIndexOf(path) === at);
}

/** The file before an edit, if the edit can be reverted. */
function revertEdit(now: string, args: Record<string, unknown>): string | undefined {
  const [old, made] = [args["old_text"], args["new_text"]];
  if (typeof old !== "string" || typeof made !== "string" || !made || now.split(made).length !== 2) return undefined;
  return now.split(made).join(old);
}

type Open = (made: Made, show: boolean) => Promise<void>;

/** Watch the open thread; open results once the canvas has loaded. */
export function watchFiles(open: Open = onCanvas): () => void {
  const threads = new Map<string, Seen>();
  let [thread, last] = [app.get().thread, openConversation(app.get())];
  return app.subscribe(() => {
    const now = openConversation(app.get());
    if (now === last) return;
    const run = now.run || (app.get().thread === thread ? last.run : "");
    [thread, last] = [app.get().thread, now];
    const known = threads.get(thread);
    const seen = known ?? new Seen();
    threads.set(thread, seen);
    if (!known || !run) return seen.skip(now); // it existed before the thread was opened
    const made = seen.take(now);
    if (!made.files.length && !made.texts.length) return;
    void open(made, mayShow(run));
  });
}

let shownIn = ""; // the run that has opened the panel

/** The panel opens once in a run, where there is room for it and nothing else is looked at. */
function mayShow(run: string): boolean {
  const state = app.get();
  const show = shownPanels(state).includes("canvas") || (state.panel === null && run !== shownIn && !isNarrow());
  if (show) shownIn = run;
  return show;
}

/** Watch the open thread for files that the agent is writing; they are shown as they grow. */
export function watchDrafts(): () => void {
  let [last, some] = [openConversation(app.get()), false];
  return app.subscribe(() => {
    const now = openConversation(app.get());
    if (now === last) return;
    last = now;
    const drafts = now.run ? openDrafts(now.items) : [];
    if (!drafts.length && !some) return;
    some = drafts.length > 0;
    void import("./drafts").then(({ putDrafts }) => putDrafts(drafts, () => mayShow(now.run)));
  });
}

async function onCanvas(made: Made, show: boolean): Promise<void> {
  const { openFile, openText } = await import("./open");
  for (const { word, text } of made.texts) openText("", text, word, { show });
  for (const { path, before } of made.files) await openFile(path, { before, show });
}
