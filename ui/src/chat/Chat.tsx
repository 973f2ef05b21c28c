/** The conversation with its pending work and the composer. */

import { useState } from "react";

import { Trouble } from "../panels/States";
import { openConversation, useApp } from "../state/app";
import { readThread } from "../state/threads";
import { attachFiles } from "./attach";
import { Composer } from "./Composer";
import { Dialogs } from "./Dialogs";
import { FindBar } from "./FindBar";
import { List } from "./List";
import { OtherAgent } from "./OtherAgent";
import { Tasks } from "./Tasks";
import { Todos } from "./Todos";
import { Welcome } from "./Welcome";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

export function Chat() {
  const [over, drop] = useDrop();
  return (
    <section className={joinClasses(styles.chat, over && styles.over)} aria-label="Conversation" {...drop}>
      <Talk />
      <StatusAnnouncement />
      <div className={styles.deskFoot}>
        <Tasks />
        <Todos />
        <Dialogs />
        <OtherAgent />
        <Composer />
      </div>
    </section>
  );
}

/** Files may be dropped anywhere on the conversation. */
function useDrop(): [boolean, React.HTMLAttributes<HTMLElement>] {
  const [over, setOver] = useState(false);
  const holds = (event: React.DragEvent) => event.dataTransfer.types.includes("Files");
  return [over, {
    onDragOver: (event) => { if (holds(event)) { event.preventDefault(); setOver(true); } },
    onDragLeave: (event) => { if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false); },
    onDrop: (event) => { if (holds(event)) { event.preventDefault(); setOver(false); void attachFiles(event.dataTransfer.files); } },
  }]; // prettier-ignore
}

function Talk() {
  const items = useApp((state) => openConversation(state).items);
  const pending = useApp((state) => openConversation(state).pending);
  const thread = useApp((state) => state.thread);
  const opening = useApp((state) => state.opening === state.thread && state.thread !== "");
  const finds = useApp((state) => state.finds);
  const trouble = useApp((state) => state.trouble);
  if (trouble && !items.length)
    return (
      <div className="middle-of">
        <Trouble text={trouble} again={() => void readThread(thread)} />
      </div>
    );
  if (opening && !items.length)
    return (
      <p className="waiting middle-of" role="status">
        Loading the thread…
      </p>
    );
  if (!items.length && !pending.length) return <Welcome />;
  return (
    <>
      <Title />
      {finds && <FindBar key={`find in ${thread}`} thread={thread} />}
      <List key={thread} items={items} pending={pending} />
    </>
  );
}

function Title() {
  const title = useApp((state) => state.threads.find((one) => one.id === state.thread)?.title);
  return <h1 className="visually-hidden">{title || "New thread"}</h1>;
}

/** Announcements for screen readers: progress and the final answer. */
function StatusAnnouncement() {
  const running = useApp((state) => Boolean(openConversation(state).run));
  const last = useApp((state) => openConversation(state).items.at(-1));
  const words =
    last?.kind === "reply" && !last.open ? last.text : last?.kind === "ended" ? last.error || last.reason : "";
  return (
    <p className="visually-hidden" role="status" aria-live="polite">
      {running ? "The agent is working" : words.slice(0, 600)}
    </p>
  );
}
