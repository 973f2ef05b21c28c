/** Tasks in the background, and how each of them is. */

import { openConversation, useApp } from "../state/app";
import { listTasks } from "./taskList";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

export function Tasks() {
  const live = useApp((state) => openConversation(state).tasks);
  const kept = useApp((state) => openConversation(state).values["tasks"]);
  const running = useApp((state) => Boolean(openConversation(state).run));
  const tasks = listTasks(kept, live);
  if (!tasks.length) return null;
  const open = tasks.filter((one) => one.status === "running" || one.status === "waiting").length;
  return (
    <details className={joinClasses(styles.strip, styles.tasks)} open={running && open > 0}>
      <summary>
        <b>Background tasks</b> {open ? `${open} of ${tasks.length} running` : `${tasks.length} finished`}
      </summary>
      <ul>
        {tasks.map((one) => (
          <li key={one.id} data-status={one.status}>
            <span className={styles.mark} aria-hidden="true" />
            <b>{one.agent}</b> <span className={styles.prompt}>{one.prompt}</span>{" "}
            <small role="status">{one.status}</small>
            {one.text && <p>{one.text}</p>}
          </li>
        ))}
      </ul>
    </details>
  );
}
