/** Questions about a selection, and changes of it that the agent proposes and the user accepts or rejects. */

import { app, notify, openConversation } from "../state/app";
import type { Conversation } from "../state/fold";
import { createStore, useStore } from "../state/store";
import { sendMessage } from "../state/talk";
import { fence } from "../parts/fence";
import { findOnce, type Selected } from "./selection";
import { refreshTab, saveTab } from "./tabFiles";
import { changeText, type Tab, tabOf } from "./tabs";

export interface Proposal {
  before: string;
  after: string | null; // null while the agent works
  written: boolean; // the agent has written the file itself
}

const proposals = createStore<Record<string, Proposal>>({});

export const useProposal = (tab: string): Proposal | undefined => useStore(proposals, (state) => state[tab]);

function setProposal(tab: string, now: Proposal | null): void {
  proposals.set(({ [tab]: _, ...rest }) => (now ? { ...rest, [tab]: now } : rest));
}

// -- requests -----------------------------------------------------------------------------------------------------

const MOST_CHARS = 20_000;

/** The part that a message is about: the file, its lines, and the text. */
function describePart(tab: Tab, { text, from }: Selected): string {
  const line = (at: number) => tab.text.slice(0, at).split("\n").length;
  const lines = from < 0 ? "" : ` (lines ${line(from)}–${line(from + text.trimEnd().length)})`;
  return `\`${tab.file?.path ?? tab.name}\`${lines}:\n\n${fence(text.slice(0, MOST_CHARS))}`;
}

export async function askAbout(tab: Tab, part: Selected, question: string): Promise<void> {
  await sendMessage({ role: "user", content: `${question}\n\nAbout this part of ${describePart(tab, part)}` });
}

const RULES =
  "Reply with the new text of exactly this part in one code block. Do not write the file: I review the change first.";

/** Ask for a change of a part; the answer becomes a proposal. */
export async function requestChange(tab: Tab, part: Selected, wish: string): Promise<void> {
  const content = `${wish}\n\nChange this part of ${describePart(tab, part)}\n\n${RULES}`;
  setProposal(tab.id, { before: tab.text, after: null, written: false });
  await sendMessage({ role: "user", content });
  const { thread } = app.get();
  await untilIdle(thread);
  const answer = answerTo(app.get().conversations[thread] ?? openConversation(app.get()), content);
  await propose(tab, part, answer);
}

function untilIdle(thread: string): Promise<void> {
  return new Promise((done) => {
    const look = () => {
      if (app.get().conversations[thread]?.run) return;
      stop();
      done();
    };
    const stop = app.subscribe(look);
    look();
  });
}

/** The text of the replies to a message. */
export function answerTo({ items }: Conversation, message: string): string {
  const at = items.findLastIndex((item) => item.kind === "user" && item.text === message);
  if (at < 0) return ""; // it could not be sent
  return items.slice(at + 1).flatMap((item) => (item.kind === "reply" ? [item.text] : [])).join("\n\n"); // prettier-ignore
}

async function propose(tab: Tab, part: Selected, answer: string): Promise<void> {
  if (tab.file) await refreshTab(tab.id, true);
  const now = tabOf(tab.id);
  const block = firstBlock(answer);
  if (now && now.text !== tab.text && block === null)
    return setProposal(tab.id, { before: tab.text, after: now.text, written: true });
  const after = now && block !== null ? replacePart(now.text, part, block) : null;
  if (after !== null && after !== now!.text) return setProposal(tab.id, { before: now!.text, after, written: false });
  setProposal(tab.id, null);
  notify("The agent proposed no change of this part; see its reply.");
}

/** The text of the first fenced block. */
export function firstBlock(answer: string): string | null {
  const found = /^(`{3,}|~{3,})[^\n`]*\n([\s\S]*?)(?:^|\n)\1[`~]*\s*$/m.exec(answer);
  return found ? found[2]! : null;
}

/** The text with the part replaced, if the part is still in it. */
export function replacePart(text: string, { text: old, from }: Selected, now: string): string | null {
  const at = from >= 0 && text.startsWith(old, from) ? from : findOnce(text, old);
  if (at < 0) return null;
  const fitting = old.endsWith("\n") ? `${now.replace(/\n$/, "")}\n` : now.replace(/\n$/, "");
  return text.slice(0, at) + fitting + text.slice(at + old.length);
}

// -- answers ------------------------------------------------------------------------------------------------------

/** Take the proposed text and save it, unless the file was changed meanwhile. */
export async function acceptChange(id: string, { after, written }: Proposal): Promise<void> {
  setProposal(id, null);
  if (!written) await writeText(id, after!);
}

/** Drop the proposal; a file that the agent has written gets its old text back. */
export async function rejectChange(id: string, { before, written }: Proposal): Promise<void> {
  setProposal(id, null);
  if (written) await writeText(id, before);
}

async function writeText(id: string, text: string): Promise<void> {
  changeText(id, text);
  if (tabOf(id)?.file) await saveTab(id);
}
