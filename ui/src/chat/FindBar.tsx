/** Find a text in the open thread: the server searches all of it, and the list goes to each message. */

import { useEffect, useRef, useState } from "react";

import * as api from "../api";
import { Icon } from "../shell/Icon";
import { openConversation, patchApp, tryRequest, useApp } from "../state/app";
import { markMatches } from "./highlights";
import styles from "./find.module.css";

const PAUSE_MS = 150; // while a word is being typed

export function FindBar({ thread }: { thread: string }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const field = useRef<HTMLInputElement>(null);
  const found = useMatches(thread, text, () => setAt(0));
  useEffect(() => field.current?.focus(), []);
  useEffect(() => (text ? markMatches(text) : undefined), [text]);
  const place = Math.min(at, Math.max(0, found.matches.length - 1));
  const goal = found.matches[place]?.seq;
  useEffect(() => {
    if (goal) patchApp({ goal });
  }, [goal, place]);
  const move = (by: number) => {
    if (!goal) return;
    setAt((place + by + found.matches.length) % found.matches.length);
    if (found.matches.length === 1) patchApp({ goal }); // else the effect shows the other match
  };
  const close = () => {
    patchApp({ finds: false });
    document.getElementById("message")?.focus();
  };
  const press = (event: React.KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault(); // it is for the search, and not for a panel
      close();
    } else if (event.key === "Enter" && event.target === field.current) {
      event.preventDefault();
      move(event.shiftKey ? -1 : 1);
    }
  };
  return (
    <div className={styles.bar} role="search" aria-label="Find in this thread" onKeyDown={press}>
      <input
        ref={field}
        type="search"
        aria-label="Text to find"
        placeholder="Find in this thread"
        maxLength={500}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <span className={styles.count} role="status">
        {text && countLabel(place, found)}
      </span>
      <button className="plain" aria-label="Previous match" title="Previous (Shift+Enter)" onClick={() => move(-1)}>
        ↑
      </button>
      <button className="plain" aria-label="Next match" title="Next (Enter)" onClick={() => move(1)}>
        ↓
      </button>
      <button className="plain" aria-label="Close the search" title="Close (Esc)" onClick={close}>
        <Icon name="close" />
      </button>
    </div>
  );
}

type Found = Awaited<ReturnType<typeof api.threads.find>> & { done: boolean };

function countLabel(place: number, { matches, more, done }: Found): string {
  if (!done) return "…";
  return matches.length ? `${place + 1} of ${matches.length}${more ? "+" : ""}` : "No matches";
}

/** The messages that contain a text, also those that arrive meanwhile. */
function useMatches(thread: string, text: string, started: () => void): Found {
  const last = useApp((state) => openConversation(state).last);
  const [found, setFound] = useState<Found>({ matches: [], done: false });
  const asked = useRef("");
  useEffect(() => {
    if (asked.current !== text) {
      asked.current = text;
      setFound({ matches: [], done: false });
      started();
    }
    if (!text.trim()) return;
    const stop = new AbortController();
    const timer = setTimeout(
      () =>
        void tryRequest(async () => {
          const answer = await api.threads.find(thread, text, stop.signal);
          if (!stop.signal.aborted) setFound({ ...answer, done: true });
        }),
      PAUSE_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `started` is a new function each time
  }, [thread, text, last]);
  return found;
}
