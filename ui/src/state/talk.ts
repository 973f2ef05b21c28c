/** Conversation actions: send, answer, stop and retry. */

import * as api from "../api";
import { ApiError } from "../api/http";
import {
  app,
  type AppState,
  tryRequest,
  openConversation,
  updateConversation,
  NEW,
  notify,
  runOnce,
  patchApp,
  setAttached,
  setDraft,
} from "./app";
import { type Conversation, EMPTY, toUserItem, type UserMessage } from "./fold";
import { followRun, isFollowed, settle } from "./runStream";
import { listAgain, refreshApprovals } from "./lists";
import { adoptModel, modelOf } from "./models";
import { toConversation } from "./threadItems";

/** Return an idempotency key, so that a repeated request counts once. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Messages of a conversation are sent in order; a new one gets its thread with the first message. */
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

/** The queue of a user is dropped at sign-out. */
export const sendNothing = (): void => lines.clear();

interface Sent {
  agent: string;
  message: api.MessageIn;
  key: string;
  shown: UserMessage;
}

/** Send a message: it starts a run, or steers the active one. */
export function sendMessage(
  message: api.MessageIn,
  { thread, agent }: Pick<AppState, "thread" | "agent"> = app.get(),
): Promise<void> {
  const key = newKey();
  const shown = toUserItem(0, message.content, "", `sent-${key}`);
  const line = lineOf(thread);
  updateConversation(thread, (old) => ({ ...old, pending: [...old.pending, shown] }));
  const done = line.last.then(() => deliverMessage(line, { agent, message, key, shown }));
  line.last = done;
  return done;
}

async function deliverMessage(line: Line, sent: Sent): Promise<void> {
  const { thread } = line;
  const asked = app.get().approvals.some((one) => one.thread_id === thread);
  const running = Boolean(app.get().conversations[thread]?.run) && !asked; // another message instead of an answer starts a new run
  const done = await tryRequest(() => (running ? steerRun(thread, sent) : startRun(line, sent)));
  if (!done) restoreDraft(thread, sent);
}

/** Return an unsent message to the composer, before a newer draft. */
function restoreDraft(thread: string, { shown, message }: Sent): void {
  updateConversation(thread, (old) => ({ ...old, pending: old.pending.filter((one) => one !== shown) }));
  const { drafts, attached } = app.get();
  const media = typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text");
  setDraft(thread, [shown.text, drafts[thread]].filter(Boolean).join("\n\n"));
  setAttached(thread, [...media, ...(attached[thread] ?? [])]);
}

async function startRun(line: Line, { agent, message, key, shown }: Sent): Promise<true> {
  const stop = new AbortController();
  const isNew = line.thread === NEW;
  const whose = app.get().me?.id;
  const model = modelOf(line.thread);
  const stream = await retryRequest(() => api.openRun(agent, [message], line.thread, key, stop.signal, model));
  if (app.get().me?.id !== whose) return (stop.abort(), true); // it is in the thread of the previous user
  if (isNew) adoptThread(line, stream.thread);
  updateConversation(stream.thread, (old) => begin({ ...old, agent }, stream.run, shown));
  followRun(stream.run, stream.thread, stream, stop);
  void listAgain();
  if (isNew) setTimeout(() => void listAgain(), 1_000); // by then it has a title
  return true;
}

/** The message that starts a run precedes it. */
function begin(old: Conversation, run: string, shown: UserMessage): Conversation {
  if (!old.pending.includes(shown)) return { ...old, run };
  return { ...old, run, pending: old.pending.filter((one) => one !== shown), items: [...old.items, shown] };
}

async function steerRun(thread: string, { message, key, shown }: Sent): Promise<true> {
  const queued = await retryRequest(() => api.threads.say(thread, [message], key));
  const known = { ...shown, key: `q${queued.position}` }; // the key of a pending message on the server
  updateConversation(thread, (old) => ({ ...old, pending: old.pending.map((one) => (one === shown ? known : one)) }));
  if (queued.run_id !== app.get().conversations[thread]?.run) await settle(thread); // the run ended before the message was delivered
  return true;
}

/** Send a request with an idempotency key, and retry it while the connection is broken. */
async function retryRequest<T>(work: () => Promise<T>): Promise<T> {
  for (let wait = 500; ; wait *= 2) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || !error.passes || wait > 8_000) throw error;
      if (error.status === 0) patchApp({ online: false });
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

/** The conversation that had no thread has one now. */
function adoptThread(line: Line, thread: string): void {
  lines.delete(NEW);
  adoptModel(thread);
  lines.set(thread, Object.assign(line, { thread }));
  app.set((old) => {
    const { [NEW]: begun = EMPTY, ...rest } = old.conversations;
    const { [NEW]: draft = "", ...drafts } = old.drafts;
    const here = old.thread === NEW; // then the draft moves along
    return {
      ...old,
      thread: here ? thread : old.thread,
      drafts: here && draft ? { ...drafts, [thread]: draft } : old.drafts,
      conversations: { ...rest, [thread]: begun },
    };
  });
}

// -- questions ---------------------------------------------------------------------------------------------------

export async function answerQuestion(asked: api.Approval, decision: api.Decision): Promise<void> {
  await runOnce(`answer ${asked.id}`, () =>
    tryRequest(() => api.approvals.answer(asked.id, { ...decision, thread_id: asked.thread_id })),
  );
  await refreshApprovals(); // also if another client was first
  if (app.get().conversations[asked.thread_id] && !isFollowed(asked.thread_id)) await settle(asked.thread_id);
}

// runs and retries

export async function stopRun(): Promise<void> {
  const { run } = openConversation(app.get());
  if (run) await runOnce(`stop ${run}`, () => tryRequest(() => api.runs.cancel(run)));
}

/** Retry a message; if others follow it, the user is asked first. */
export async function askAndRetry(message: UserMessage): Promise<void> {
  const later = openConversation(app.get()).items.filter(
    (item) => item.kind === "user" && !item.by && item.seq > message.seq,
  ).length;
  const kept = later === 1 ? "The later message stays" : `The ${later} later messages stay`;
  const question = `Retry this message? ${kept} in the version that it has now.`;
  if (!later || confirm(question)) await retryRun(message);
}

/** Rewind to before a message and send another one, or the same; return true on success. */
export async function retryRun(message: UserMessage, words = message.text): Promise<boolean> {
  const { thread, agent } = app.get();
  const detail = await runOnce(`retry ${thread}`, () =>
    tryRequest(() => api.threads.rewind(thread, Math.max(message.seq - 1, 0))),
  );
  if (!detail) return false;
  updateConversation(thread, () => toConversation(detail));
  void sendMessage(spoken(words, message.parts.map(sameAgain)), { thread, agent });
  return true;
}

/** Show another version of a message, and all that followed it. */
export async function switchBranch(to: number): Promise<void> {
  const { thread } = app.get();
  const detail = await runOnce(`retry ${thread}`, () => tryRequest(() => api.threads.switchBranch(thread, to)));
  if (!detail) return;
  updateConversation(thread, () => toConversation(detail));
  patchApp({ goal: to });
}

/** Text and attachments as one message. */
export function spoken(words: string, media: api.Media[]): api.MessageIn {
  if (!media.length) return { role: "user", content: words };
  return { role: "user", content: [...(words.trim() ? [{ type: "text" as const, text: words }] : []), ...media] };
}

/** Copy a part to send it again. */
function sameAgain({ type, data, url, media_type, name }: api.Part): api.Media {
  return {
    type: type === "image" ? "image" : "file",
    ...(data ? { data } : {}),
    ...(url ? { url } : {}),
    ...(media_type ? { media_type } : {}),
    ...(name ? { name } : {}),
  };
}

/** The message of the user that a reply answers. */
export function askedBefore(seq: number): UserMessage | undefined {
  return openConversation(app.get()).items.findLast(
    (item): item is UserMessage => item.kind === "user" && !item.by && item.seq > 0 && item.seq < seq,
  );
}

/** The run that received a message; empty if there is no reply since. */
export function runAfter(seq: number): string {
  const next = openConversation(app.get()).items.find(
    (item) => item.kind !== "user" && item.run && (item.seq > seq || !item.seq),
  );
  return next?.kind === "reply" || next?.kind === "ended" ? next.run : "";
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    notify("The browser blocked copying; select the text and copy it manually.", "error");
  }
}
