/** The questions of all threads, in one place. */

import { useEffect } from "react";

import type { Approval } from "../api";
import { Ask } from "../chat/Ask";
import { useApp } from "../state/app";
import { refreshApprovals } from "../state/lists";
import { openThread } from "../state/threads";
import styles from "./approvals.module.css";

export default function Approvals() {
  const approvals = useApp((state) => state.approvals);
  useEffect(() => void refreshApprovals(), []);
  if (!approvals.length)
    return (
      <p className="empty">
        No pending questions. Approvals and questions of agents in all your threads are listed here.
      </p>
    );
  return (
    <ul className={styles.inbox} aria-label="Questions">
      {approvals.map((asked) => (
        <One key={asked.id} asked={asked} />
      ))}
    </ul>
  );
}

function One({ asked }: { asked: Approval }) {
  const here = useApp((state) => state.thread === asked.thread_id);
  return (
    <li aria-labelledby={`inbox-${asked.id}`}>
      <p className={styles.from}>
        <b>{asked.agent_id}</b> in{" "}
        {here ? (
          "this thread"
        ) : (
          <button className="link" onClick={() => void openThread(asked.thread_id)}>
            {asked.title || "Untitled"}
          </button>
        )}
      </p>
      <Ask asked={asked} title={`inbox-${asked.id}`} />
    </li>
  );
}
