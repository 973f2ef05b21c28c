/** Changes from the server, as events: one connection for all windows of a browser. */

import * as api from "../api";
import { serverUrl } from "../api/http";
import { patchApp } from "./app";

export interface Change {
  event: string;
  data: Record<string, unknown>;
}

type Listener = (change: Change) => void;

const listeners = new Set<Listener>();
let connection: AbortController | null = null;

/** Call a listener for each change; `resync` says that some may be lost. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Call a listener when files of an agent may have changed. */
export const onFileChange = (agent: string, listener: () => void): (() => void) =>
  onChange(({ event, data }) => {
    if (event === "resync" || (event === "files" && (data["agent_id"] || agent) === agent)) listener();
  });

/** Connect for a user. The first window reads the stream and passes it on; if it closes, another one takes over. */
export function openChanges(user: string): void {
  closeChanges();
  connection = new AbortController();
  const { signal } = connection;
  const name = `wick events ${serverUrl("/")} ${user}`;
  if (!("locks" in navigator) || !("BroadcastChannel" in globalThis)) return void readChanges(signal, deliver); // not over plain HTTP
  const channel = new BroadcastChannel(name);
  let reads = false;
  signal.addEventListener("abort", () => channel.close());
  channel.onmessage = ({ data }: MessageEvent<Change>) => {
    if (data.event !== ASK) deliver(data);
    else if (reads) channel.postMessage({ event: CONNECTED, data: {} });
  };
  channel.postMessage({ event: ASK, data: {} });
  const lead = () =>
    readChanges(signal, (change) => {
      reads = change.event !== LOST;
      deliver(change);
      if (!signal.aborted) channel.postMessage(change);
    });
  navigator.locks.request(name, { signal }, lead).catch(() => undefined); // aborted
}

export function closeChanges(): void {
  connection?.abort();
  connection = null;
  patchApp({ pushed: false });
}

/** Events between windows: is there a connection, there is one, it is broken. */
const [ASK, CONNECTED, LOST] = ["ask", "connected", "lost"];

const LONGEST_PAUSE_MS = 10_000;

async function readChanges(signal: AbortSignal, deliver: Listener): Promise<void> {
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, LONGEST_PAUSE_MS)) {
    try {
      for await (const { event, data } of await api.openEvents(signal)) {
        if (signal.aborted) return;
        wait = 250;
        deliver({ event, data: (JSON.parse(data) as Partial<Change>).data ?? {} });
      }
    } catch {
      // tried again below; requests report an expired session
    }
    if (signal.aborted) return;
    deliver({ event: LOST, data: {} });
    await pause(wait, signal);
  }
}

/** Wait, or until the browser is online again. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const over = () => (clearTimeout(timer), removeEventListener("online", over), done());
    const timer = setTimeout(over, ms);
    addEventListener("online", over);
    signal.addEventListener("abort", over, { once: true });
  });
}

function deliver(change: Change): void {
  patchApp({ pushed: change.event !== LOST });
  for (const listener of [...listeners]) listener(change);
}
