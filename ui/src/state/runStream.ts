/** Following the run of the open thread to its end, through whatever happens to the connection. */

import * as api from "../api";
import { ApiError } from "../api/http";
import type { Frame } from "../api/sse";
import { app, tryRequest, updateConversation, patchApp } from "./app";
import { EMPTY, type Event, foldFrame } from "./fold";
import { listAgain, refreshApprovals } from "./lists";
import { mergeThread } from "./threadItems";

const following = new Map<string, AbortController>(); // by thread
const DRAW_MS = 30; // frames within this time are drawn at once
const SLOW_DRAW_MS = 34; // two frames of the screen; after a slower one the page gets time for its user
const MOST_PAUSE_MS = 250;

export const isFollowed = (thread: string): boolean => following.has(thread);

/** Follow a thread: from an open stream, or from the last seen position. */
export function followRun(
  run: string,
  thread: string,
  first: api.Stream | null = null,
  stop = new AbortController(),
): void {
  if (following.has(thread) || app.get().thread !== thread) return stop.abort(); // it is followed already, or not open
  following.set(thread, stop);
  void consumeStream(first, run, thread, stop);
}

/** Stop following all other threads. A browser has few connections per host, and all windows share them. */
export function followOnlyRun(thread: string): void {
  for (const [one, stop] of following) {
    if (one === thread) continue;
    following.delete(one);
    stop.abort();
  }
}

export const followNothing = (): void => followOnlyRun("");

/** Load a thread and follow its run; return the state of the thread. */
export async function settle(thread: string): Promise<"there" | "gone" | "unknown"> {
  try {
    const detail = await api.threads.get(thread);
    if (!app.get().me) return "unknown";
    updateConversation(thread, (old) => mergeThread(old, detail));
    if (detail.run_id) followRun(detail.run_id, thread);
    void listAgain();
    return "there";
  } catch (error) {
    return error instanceof ApiError && error.status === 404 ? "gone" : "unknown";
  }
}

async function consumeStream(
  first: api.Stream | null,
  run: string,
  thread: string,
  stop: AbortController,
): Promise<void> {
  try {
    await read(first, run, thread, stop);
  } catch (error) {
    if (!stop.signal.aborted) await tryRequest(() => Promise.reject(error as Error));
  } finally {
    if (following.get(thread) === stop) following.delete(thread);
  }
  if (!stop.signal.aborted) await settle(thread);
}

/** Read a run's frames until it is over; reconnect a broken connection after the last frame. */
async function read(first: api.Stream | null, run: string, thread: string, stop: AbortController): Promise<void> {
  for (let stream = first, wait = 250; !stop.signal.aborted; wait = Math.min(wait * 2, 5_000)) {
    try {
      stream ??= await api.watchRun(run, resumeFrom(thread), stop.signal);
      if (stream === null) return;
      patchApp({ online: true });
      const alive = () => (wait = 250);
      if (await drainFrames(stream.frames, (frames) => foldFrames(thread, frames, stop), alive)) return;
    } catch (error) {
      if (error instanceof ApiError && !error.passes) throw error;
    }
    if (stop.signal.aborted) return;
    stream = null;
    patchApp({ online: false });
    await untilOnline(wait);
  }
}

/** Read every frame of a stream in batches; return true if the last one was the end of the run. */
async function drainFrames(
  frames: AsyncGenerator<Frame>,
  take: (some: Frame[]) => void,
  alive: () => void,
): Promise<boolean> {
  let waiting: Frame[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let pause = DRAW_MS;
  const flush = () => {
    clearTimeout(timer);
    const some = waiting;
    [timer, waiting] = [undefined, []];
    take(some);
    measureDraw((ms) => (pause = ms > SLOW_DRAW_MS ? Math.min(2 * ms, MOST_PAUSE_MS) : DRAW_MS));
  };
  try {
    for await (const frame of frames) {
      alive();
      waiting.push(frame);
      if (frame.event === "done" || frame.event === "error") return true;
      timer ??= setTimeout(flush, pause);
    }
    return false;
  } finally {
    flush();
  }
}

/** Pass on the time from now until the page has been drawn. A hidden page is not drawn. */
function measureDraw(done: (ms: number) => void): void {
  const begun = performance.now();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
}

function resumeFrom(thread: string): string {
  const { last, part } = app.get().conversations[thread] ?? EMPTY;
  return last ? (part === Infinity ? String(last) : `${last}.${part}`) : "";
}

/** Fold frames into their conversation. */
function foldFrames(thread: string, frames: Frame[], stop: AbortController): void {
  if (!frames.length || stop.signal.aborted) return;
  updateConversation(thread, (old) =>
    frames.reduce((talk, frame) => foldFrame(talk, frame.id, parseEvent(frame)), old),
  );
  if (frames.some((frame) => frame.event.startsWith("on_approval"))) void refreshApprovals();
}

function parseEvent(frame: Frame): Event {
  const event = JSON.parse(frame.data) as Event;
  return { ...event, event: event.event ?? frame.event };
}

/** Wait a while, or until the browser is online. */
function untilOnline(ms: number): Promise<void> {
  return new Promise((done) => {
    const over = () => (clearTimeout(timer), removeEventListener("online", over), done());
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
  });
}
