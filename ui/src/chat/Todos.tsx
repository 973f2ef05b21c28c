/** The list that the agent works by. */

import { openConversation, useApp } from "../state/app";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

interface Todo {
  id: string;
  title: string;
  status: "pending" | "in_progress" | "done";
}

const WORDS = { pending: "to do", in_progress: "in progress", done: "done" };

export function Todos() {
  const todos = useApp((state) => openConversation(state).values["todos"]);
  const running = useApp((state) => Boolean(openConversation(state).run));
  const list = Array.isArray(todos) ? (todos as Todo[]) : [];
  if (!list.length) return null;
  const done = list.filter((one) => one.status === "done").length;
  const now = list.find((one) => one.status === "in_progress");
  return (
    <details className={joinClasses(styles.strip, styles.todos)} open={running && done < list.length}>
      <summary>
        <b>To do</b> {done} of {list.length} done{now && <span>: {now.title}</span>}
        <progress max={list.length} value={done} aria-label="Todos done" />
      </summary>
      <ul>
        {list.map((one) => (
          <li key={one.id} data-status={one.status}>
            <span className={styles.box} role="img" aria-label={WORDS[one.status] ?? one.status} /> {one.title}
          </li>
        ))}
      </ul>
    </details>
  );
}
