/** Tasks in the background, and how each of them is. */

import { conversation, useApp } from "../state/app";
import { everyTask } from "./everyTask";

export function Tasks() {
  const live = useApp((state) => conversation(state).tasks);
  const kept = useApp((state) => conversation(state).values["tasks"]);
  const running = useApp((state) => Boolean(conversation(state).run));
  const tasks = everyTask(kept, live);
  if (!tasks.length) return null;
  const open = tasks.filter((one) => one.status === "running" || one.status === "waiting").length;
  return (
    <details className="strip tasks" open={running && open > 0}>
      <summary><b>Background tasks</b> {open ? `${open} of ${tasks.length} running` : `${tasks.length} finished`}</summary>
      <ul>
        {tasks.map((one) => (
          <li key={one.id} className={one.status}>
            <span className="mark" aria-hidden="true" /><b>{one.agent}</b> <span className="prompt">{one.prompt}</span> <small role="status">{one.status}</small>
            {one.text && <p>{one.text}</p>}
          </li>
        ))}
      </ul>
    </details>
  );
}
