/** Talking: what is said, answered, stopped, and said again. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, type AppState, attempt, conversation, converse, NEW, notify, once, patch, setAttached, setDraft } from "./app";
import { type Conversation, EMPTY, said, type Said } from "./fold";
import { follow, isFollowed, settle } from "./following";
import { listAgain, refreshApprovals } from "./lists";
import { loaded } from "./loaded";

/** A name for a request, so that it counts once however often it is made. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What is said in one conversation is sent in its order; one that has no thread yet has it after the first message. */
interface Line {
  thread: string;
  last: Promise<unknown>;
}

const lines = new Map<string, Line>();

function lineOf(thread: string): Line {
  const line = lines.get(thread) ?? { thread, last: Promise.resolve() };
  lines.set(thread, line);
  return line;
}

/** Who comes next waits for nothing that somebody else has said. */
export const sendNothing = (): void => lines.clear();

interface Sent {
  agent: string;
  message: api.MessageIn;
  key: string;
  shown: Said;
}

/** Say something in a thread: it begins a run, or steers the one that goes on. */
export function send(message: api.MessageIn, { thread, agent }: Pick<AppState, "thread" | "agent"> = app.get()): Promise<void> {
  const key = newKey();
  const shown = said(0, message.content as string | api.Part[], "", `sent-${key}`);
  const line = lineOf(thread);
  converse(thread, (old) => ({ ...old, pending: [...old.pending, shown] }));
  const done = line.last.then(() => deliver(line, { agent, message, key, shown }));
  line.last = done;
  return done;
}

async function deliver(line: Line, sent: Sent): Promise<void> {
  const { thread } = line;
  const asked = app.get().approvals.some((one) => one.thread_id === thread);
  const running = Boolean(app.get().conversations[thread]?.run) && !asked; // who says something else instead of an answer begins anew
  const done = await attempt(() => (running ? steer(thread, sent) : start(line, sent)));
  if (!done) takeBack(thread, sent);
}

/** What could not be sent is given back to who wrote it, before what they have written since. */
function takeBack(thread: string, { shown, message }: Sent): void {
  converse(thread, (old) => ({ ...old, pending: old.pending.filter((one) => one !== shown) }));
  const { drafts, attached } = app.get();
  const media = typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text");
  setDraft(thread, [shown.text, drafts[thread]].filter(Boolean).join("\n\n"));
  setAttached(thread, [...media, ...(attached[thread] ?? [])]);
}

async function start(line: Line, { agent, message, key, shown }: Sent): Promise<true> {
  const stop = new AbortController();
  const isNew = line.thread === NEW;
  const whose = app.get().me?.id;
  const stream = await again(() => api.ask(agent, [message], line.thread, key, stop.signal));
  if (app.get().me?.id !== whose) return (stop.abort(), true); // it is in their thread, and somebody else is here
  if (isNew) adopt(line, stream.thread);
  converse(stream.thread, (old) => begin({ ...old, agent }, stream.run, shown));
  follow(stream.run, stream.thread, stream, stop);
  void listAgain();
  if (isNew) setTimeout(() => void listAgain(), 1_000); // by then it has a title
  return true;
}

/** What begins a run stands before it. */
function begin(old: Conversation, run: string, shown: Said): Conversation {
  if (!old.pending.includes(shown)) return { ...old, run };
  return { ...old, run, pending: old.pending.filter((one) => one !== shown), items: [...old.items, shown] };
}

async function steer(thread: string, { message, key, shown }: Sent): Promise<true> {
  const queued = await again(() => api.threads.say(thread, [message], key));
  const known = { ...shown, key: `q${queued.position}` }; // as the server names what waits
  converse(thread, (old) => ({ ...old, pending: old.pending.map((one) => (one === shown ? known : one)) }));
  if (queued.run_id !== app.get().conversations[thread]?.run) await settle(thread); // the run was over before it was heard
  return true;
}

/** A request that can be made twice, since it has a key; the connection may come back. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (let wait = 500; ; wait *= 2) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || !error.passes || wait > 8_000) throw error;
      if (error.status === 0) patch({ online: false });
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

/** The conversation that had no thread has one now. */
function adopt(line: Line, thread: string): void {
  lines.delete(NEW);
  lines.set(thread, Object.assign(line, { thread }));
  app.set((old) => {
    const { [NEW]: begun = EMPTY, ...rest } = old.conversations;
    const { [NEW]: draft = "", ...drafts } = old.drafts;
    const here = old.thread === NEW; // then what is being written goes along
    return { ...old, thread: here ? thread : old.thread, drafts: here && draft ? { ...drafts, [thread]: draft } : old.drafts, conversations: { ...rest, [thread]: begun } };
  });
}

// -- questions ---------------------------------------------------------------------------------------------------

export async function answer(asked: api.Approval, decision: api.Decision): Promise<void> {
  await once(`answer ${asked.id}`, () => attempt(() => api.approvals.answer(asked.id, { ...decision, thread_id: asked.thread_id })));
  await refreshApprovals(); // also if somebody else was first
  if (app.get().conversations[asked.thread_id] && !isFollowed(asked.thread_id)) await settle(asked.thread_id);
}

// -- the run, and what was said ----------------------------------------------------------------------------------

export async function stop(): Promise<void> {
  const { run } = conversation(app.get());
  if (run) await once(`stop ${run}`, () => attempt(() => api.runs.cancel(run)));
}

/** Go back to before a message and say something else there, or the same again; whether that could be done. */
export async function retry(message: Said, words = message.text): Promise<boolean> {
  const { thread, agent } = app.get();
  const detail = await once(`retry ${thread}`, () => attempt(() => api.threads.rewind(thread, Math.max(message.seq - 1, 0))));
  if (!detail) return false;
  converse(thread, () => loaded(detail));
  void send(spoken(words, message.parts.map(sameAgain)), { thread, agent });
  return true;
}

/** Words, and what comes with them, as one message. */
export function spoken(words: string, media: api.Media[]): api.MessageIn {
  if (!media.length) return { role: "user", content: words };
  return { role: "user", content: [...(words.trim() ? [{ type: "text" as const, text: words }] : []), ...media] };
}

/** A part as it came, to be sent once more. */
function sameAgain({ type, data, url, media_type, name }: api.Part): api.Media {
  return { type: type === "image" ? "image" : "file", ...(data ? { data } : {}), ...(url ? { url } : {}), ...(media_type ? { media_type } : {}), ...(name ? { name } : {}) };
}

/** The message of the user that a reply answers. */
export function askedBefore(seq: number): Said | undefined {
  return conversation(app.get()).items.findLast((item): item is Said => item.kind === "user" && !item.by && item.seq > 0 && item.seq < seq);
}

/** The run that heard what was said; empty if none has said anything since. */
export function runAfter(seq: number): string {
  const next = conversation(app.get()).items.find((item) => item.kind !== "user" && item.run && (item.seq > seq || !item.seq));
  return next?.kind === "reply" || next?.kind === "ended" ? next.run : "";
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    notify("The browser blocked copying; select the text and copy it manually.", "error");
  }
}
