/** Talking: what is sent, and the runs that are followed, through whatever happens to the connection. */

import * as api from "../api";
import { ApiError } from "../api/http";
import type { Frame } from "../api/sse";
import { app, attempt, converse, conversation, NEW, notify, patch, setAttached, setDraft } from "./app";
import { type Conversation, EMPTY, type Event, fold, said, type Said } from "./fold";
import { listAgain, refreshApprovals } from "./lists";
import { loaded, merged } from "./loaded";

const following = new Map<string, AbortController>(); // by run
const DRAW_MS = 30; // what comes within this time is drawn at once

export const isFollowed = (thread: string): boolean => following.has(app.get().conversations[thread]?.run ?? "");

/** A name for a request, so that it counts once however often it is made. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Say something: it begins a run, or steers the one that goes on. */
export async function send(message: api.MessageIn): Promise<void> {
  const { thread, agent } = app.get();
  const key = newKey();
  const shown = said(0, message.content as string | api.Part[], "", `sent-${key}`);
  const asked = app.get().approvals.some((one) => one.thread_id === thread);
  const running = Boolean(conversation(app.get()).run) && !asked; // who says something else instead of an answer begins anew
  converse(thread, (old) => ({ ...old, pending: [...old.pending, shown] }));
  const sent = await attempt(() => (running ? steer(thread, message, key) : start(agent, thread, message, key, shown)));
  if (!sent) takeBack(thread, shown, message);
}

/** What could not be sent is given back to who wrote it. */
function takeBack(thread: string, shown: Said, message: api.MessageIn): void {
  converse(thread, (old) => ({ ...old, pending: old.pending.filter((one) => one !== shown) }));
  if (app.get().drafts[thread] || app.get().attached[thread]?.length) return;
  setDraft(thread, shown.text);
  setAttached(thread, typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text"));
}

async function start(agent: string, thread: string, message: api.MessageIn, key: string, shown: Said): Promise<true> {
  const stop = new AbortController();
  const stream = await again(() => api.ask(agent, [message], thread, key, stop.signal));
  if (following.has(stream.run)) return (stop.abort(), true); // it is watched already, and hears this
  following.set(stream.run, stop);
  if (!thread) adopt(stream.thread);
  converse(stream.thread, (old) => begin(old, stream.run, shown));
  void listAgain();
  if (!thread) setTimeout(() => void listAgain(), 1_000); // by then it has a title
  void consume(stream, stream.run, stream.thread, stop);
  return true;
}

/** What begins a run stands before it. */
function begin(old: Conversation, run: string, shown: Said): Conversation {
  if (!old.pending.includes(shown)) return { ...old, run };
  return { ...old, run, pending: old.pending.filter((one) => one !== shown), items: [...old.items, shown] };
}

async function steer(thread: string, message: api.MessageIn, key: string): Promise<true> {
  const queued = await again(() => api.threads.say(thread, [message], key));
  if (queued.run_id !== app.get().conversations[thread]?.run) await settle(thread); // the run was over before it was heard
  return true;
}

/** A request that can be made twice, since it has a key; the connection may come back. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (let wait = 500; ; wait *= 2) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 0 || wait > 8_000) throw error;
      patch({ online: false });
      await pause(wait);
    }
  }
}

/** The conversation that had no thread has one now. */
function adopt(thread: string): void {
  app.set((old) => {
    const { [NEW]: begun = EMPTY, ...rest } = old.conversations;
    return { ...old, thread: old.thread === NEW ? thread : old.thread, conversations: { ...rest, [thread]: begun } };
  });
}

/** Watch a run to its end. */
export async function follow(run: string, thread: string): Promise<void> {
  if (following.has(run)) return;
  const stop = new AbortController();
  following.set(run, stop);
  await consume(null, run, thread, stop);
}

/** Nobody looks any longer. */
export function followNothing(): void {
  for (const stop of following.values()) stop.abort();
  following.clear();
}

/** Bring a conversation to where its thread is, and follow what goes on there. */
export async function settle(thread: string): Promise<void> {
  const detail = await api.threads.get(thread).catch(() => null);
  if (!detail || !app.get().me) return;
  converse(thread, (old) => merged(old, detail));
  if (detail.run_id) void follow(detail.run_id, thread);
  void listAgain();
}

async function consume(first: api.Stream | null, run: string, thread: string, stop: AbortController): Promise<void> {
  try {
    await read(first, run, thread, stop);
  } catch (error) {
    await attempt(() => Promise.reject(error as Error));
  } finally {
    for (const [one, by] of following) if (by === stop) following.delete(one);
  }
  if (!stop.signal.aborted) await settle(thread);
}

/** Read a run's frames until it is over; a connection that breaks is made again, from where it broke. */
async function read(first: api.Stream | null, run: string, thread: string, stop: AbortController): Promise<void> {
  for (let stream = first, wait = 250; !stop.signal.aborted; wait = Math.min(wait * 2, 5_000)) {
    try {
      stream ??= await api.watch(run, resumeFrom(thread), stop.signal);
      if (stream === null) return;
      patch({ online: true });
      const alive = () => (wait = 250);
      if (await drained(stream.frames, (frames) => take(thread, frames, stop), alive)) return;
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
      if (stop.signal.aborted) return;
    }
    stream = null;
    patch({ online: false });
    await untilOnline(wait);
  }
}

/** Take every frame of a stream, some at a time; whether the last one was the run's end. */
async function drained(frames: AsyncGenerator<Frame>, take: (some: Frame[]) => void, alive: () => void): Promise<boolean> {
  let waiting: Frame[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    clearTimeout(timer);
    const some = waiting;
    [timer, waiting] = [undefined, []];
    take(some);
  };
  try {
    for await (const frame of frames) {
      alive();
      waiting.push(frame);
      if (frame.event === "done" || frame.event === "error") return true;
      timer ??= setTimeout(flush, DRAW_MS);
    }
    return false;
  } finally {
    flush();
  }
}

function resumeFrom(thread: string): string {
  const { last, part } = app.get().conversations[thread] ?? EMPTY;
  return last ? (part === Infinity ? String(last) : `${last}.${part}`) : "";
}

/** Fold frames into their conversation; a stream may go on with the next run. */
function take(thread: string, frames: Frame[], stop: AbortController): void {
  if (!frames.length || stop.signal.aborted) return;
  converse(thread, (old) => frames.reduce((talk, frame) => fold(talk, frame.id, named(frame)), old));
  const { run } = app.get().conversations[thread] ?? EMPTY;
  if (run && !following.has(run)) following.set(run, stop);
  if (frames.some((frame) => frame.event.startsWith("on_approval"))) void refreshApprovals();
}

function named(frame: Frame): Event {
  const event = JSON.parse(frame.data) as Event;
  return { ...event, event: event.event ?? frame.event };
}

// -- questions ---------------------------------------------------------------------------------------------------

export async function answer(asked: api.Approval, decision: api.Decision): Promise<void> {
  await attempt(() => api.approvals.answer(asked.id, { ...decision, thread_id: asked.thread_id }));
  await refreshApprovals(); // also if somebody else was first
  if (app.get().conversations[asked.thread_id] && !isFollowed(asked.thread_id)) await settle(asked.thread_id);
}

// -- the run, and what was said ----------------------------------------------------------------------------------

export async function stop(): Promise<void> {
  const { run } = conversation(app.get());
  if (run) await attempt(() => api.runs.cancel(run));
}

/** Go back to before a message and say something else there, or the same again. */
export async function retry(message: Said, words = message.text): Promise<void> {
  const { thread } = app.get();
  await attempt(async () => {
    const detail = await api.threads.rewind(thread, Math.max(message.seq - 1, 0));
    converse(thread, () => loaded(detail));
    await send(spoken(words, message.parts.map(sameAgain)));
  });
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

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    notify("The browser does not let pages copy here; select the text and copy it by hand.", "error");
  }
}

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** A while, or until the browser says that there is a connection again. */
function untilOnline(ms: number): Promise<void> {
  return new Promise((done) => {
    const over = () => (clearTimeout(timer), removeEventListener("online", over), done());
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
  });
}
