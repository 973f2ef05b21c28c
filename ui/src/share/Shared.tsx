/** A thread that is read through a link, without an account. */

import { type MouseEvent, useEffect, useState } from "react";

import * as api from "../api";
import { serverUrl } from "../api/http";
import { filePath } from "../canvas/links";
import Nested from "../chat/Nested";
import { ReadOnly } from "../parts/readOnly";
import { Notices } from "../shell/Notices";
import type { Item } from "../state/fold";
import { toConversation } from "../state/threadItems";
import styles from "./shared.module.css";

type Thread = Awaited<ReturnType<typeof api.shares.read>>;

export function Shared({ secret }: { secret: string }) {
  const [thread, setThread] = useState<Thread | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    api.shares
      .read(secret)
      .then(setThread)
      .catch((error: unknown) => setProblem(error instanceof Error ? error.message : String(error)));
  }, [secret]);
  useEffect(() => {
    if (thread) document.title = `${thread.title || "Shared thread"} · wick`;
  }, [thread]);
  return (
    <ReadOnly.Provider value>
      <main className={styles.page}>
        <header className={styles.head}>
          <img src={serverUrl("/wick.svg")} alt="" width="26" height="26" />
          <h1>{thread ? thread.title || "Untitled" : "Shared thread"}</h1>
          {thread && <p>Shared {new Date(thread.created * 1000).toLocaleString()}. Later messages are not shown.</p>}
        </header>
        {problem && (
          <p className="empty" role="alert">
            {problem}
          </p>
        )}
        {!thread && !problem && (
          <p className="waiting" role="status">
            Loading…
          </p>
        )}
        {thread && (
          <div className={styles.messages} onClickCapture={stopFileLinks}>
            <Nested items={listItems(thread)} />
          </div>
        )}
      </main>
      <Notices />
    </ReadOnly.Provider>
  );
}

/** Links to files of the workspace lead nowhere here. */
function stopFileLinks(event: MouseEvent): void {
  const link = (event.target as Element).closest("a");
  if (!link || filePath(link.getAttribute("href") ?? "") === null) return;
  event.preventDefault();
  event.stopPropagation();
}

function listItems(thread: Thread): Item[] {
  const about = { id: "", agent_id: "", meta: {}, updated: 0, last: 0, ends: [], unheard: [] };
  return toConversation({ ...about, ...thread }).items;
}
