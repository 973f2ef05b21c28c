/** Events of agents: one connection for all panels, while one is open. */

import { useEffect, useRef } from "react";

import * as api from "../api";

export interface News {
  event: string;
  data: Record<string, unknown>;
}

type Listener = (news: News) => void;

const listeners = new Set<Listener>();
let connection: AbortController | null = null;

/** Subscribe to events; after a reconnect there is a `resync`. */
export function subscribe(listener: Listener): () => void {
  listeners.add(listener);
  if (!connection) {
    connection = new AbortController();
    void readNews(connection.signal);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size) return;
    connection?.abort();
    connection = null;
  };
}

async function readNews(signal: AbortSignal): Promise<void> {
  for (let wait = 500, first = true; !signal.aborted; wait = Math.min(wait * 2, 30_000), first = false) {
    try {
      const frames = await api.openAgentEvents(signal);
      if (!first) notifyListeners({ event: "resync", data: {} });
      for await (const frame of frames) {
        wait = 500;
        notifyListeners(parseNews(frame.event, frame.data));
      }
    } catch {
      if (signal.aborted) return; // otherwise it is tried again
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

function parseNews(event: string, text: string): News {
  const { data } = JSON.parse(text) as { data?: Record<string, unknown> };
  return { event, data: data ?? {} };
}

function notifyListeners(news: News): void {
  for (const listener of [...listeners]) listener(news);
}

/** Call a listener when an agent changes, also in another client. `about` is the agent; all agents if it is empty. */
export function useNews(about: string, listener: Listener): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(
    () =>
      subscribe((news) => {
        if (!about || !news.data["agent_id"] || news.data["agent_id"] === about) latest.current(news);
      }),
    [about],
  );
}
