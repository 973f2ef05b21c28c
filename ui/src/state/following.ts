/** Following the run of the open thread to its end, through whatever happens to the connection. */

import * as api from "../api";
import { ApiError } from "../api/http";
import type { Frame } from "../api/sse";
import { app, attempt, converse, patch } from "./app";
import { EMPTY, type Event, fold } from "./fold";
import { listAgain, refreshApprovals } from "./lists";
import { merged } from "./loaded";

const following = new Map<string, AbortController>(); // by thread
const DRAW_MS = 30; // what comes within this time is drawn at once

export const isFollowed = (thread: string): boolean => following.has(thread);

/** Watch what goes on in a thread: from a stream that is there already, or from where it was last seen. */
export function follow(run: string, thread: string, first: api.Stream | null = null, stop = new AbortController()): void {
  if (following.has(thread) || app.get().thread !== thread) return stop.abort(); // it is watched already, or nobody looks
  following.set(thread, stop);
  void consume(first, run, thread, stop);
}

/** Nobody looks any longer, except at that thread. A browser has few connections to a server, and all windows share them. */
export function followOnly(thread: string): void {
  for (const [one, stop] of following) {
    if (one === thread) continue;
    following.delete(one);
    stop.abort();
  }
}

export const followNothing = (): void => followOnly("");

/** Bring a conversation to where its thread is, and follow what goes on there; what became of the thread. */
export async function settle(thread: string): Promise<"there" | "gone" | "unknown"> {
  try {
    const detail = await api.threads.get(thread);
    if (!app.get().me) return "unknown";
    converse(thread, (old) => merged(old, detail));
    if (detail.run_id) follow(detail.run_id, thread);
    void listAgain();
    return "there";
  } catch (error) {
    return error instanceof ApiError && error.status === 404 ? "gone" : "unknown";
  }
}

async function consume(first: api.Stream | null, run: string, thread: string, stop: AbortController): Promise<void> {
  try {
    await read(first, run, thread, stop);
  } catch (error) {
    if (!stop.signal.aborted) await attempt(() => Promise.reject(error as Error));
  } finally {
    if (following.get(thread) === stop) following.delete(thread);
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
      if (error instanceof ApiError && !error.passes) throw error;
    }
    if (stop.signal.aborted) return;
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

/** Fold frames into their conversation. */
function take(thread: string, frames: Frame[], stop: AbortController): void {
  if (!frames.length || stop.signal.aborted) return;
  converse(thread, (old) => frames.reduce((talk, frame) => fold(talk, frame.id, named(frame)), old));
  if (frames.some((frame) => frame.event.startsWith("on_approval"))) void refreshApprovals();
}

function named(frame: Frame): Event {
  const event = JSON.parse(frame.data) as Event;
  return { ...event, event: event.event ?? frame.event };
}

/** A while, or until the browser says that there is a connection again. */
function untilOnline(ms: number): Promise<void> {
  return new Promise((done) => {
    const over = () => (clearTimeout(timer), removeEventListener("online", over), done());
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
  });
}
