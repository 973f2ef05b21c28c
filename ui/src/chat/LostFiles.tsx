/** A question about a lost workspace: try again, start afresh without its files, or end the run. */

import { useState } from "react";

import type { Approval } from "../api";
import { showControls } from "../parts/visible";
import { answerQuestion } from "../state/talk";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

const START_AFRESH = { workspace: "start afresh" }; // a plain approval never leads to an empty folder

export function LostFiles({ asked, title }: { asked: Approval; title: string }) {
  const [sure, setSure] = useState(false);
  const [busy, setBusy] = useState(false);
  const say = async (decision: Parameters<typeof answerQuestion>[1]) => {
    setBusy(true);
    await answerQuestion(asked, decision);
    setBusy(false);
  };
  return (
    <div className={styles.ask}>
      <h2 id={title}>{showControls(asked.question)}</h2>
      {sure ? (
        <>
          <p className={joinClasses(styles.hint, styles.bad)} role="alert">
            The agent continues in an empty folder. The missing files are not restored, even if their server is
            available again.
          </p>
          <div className="choices">
            <button className="no" disabled={busy} onClick={() => void say({ choice: "allow", args: START_AFRESH })}>
              Start afresh without the files
            </button>
            <button disabled={busy} autoFocus onClick={() => setSure(false)}>
              Back
            </button>
          </div>
        </>
      ) : (
        <div className="choices">
          <button className="main" disabled={busy} onClick={() => void say({ choice: "allow" })}>
            Try again
          </button>
          <button disabled={busy} onClick={() => setSure(true)}>
            Start afresh…
          </button>
          <button className="no" disabled={busy} onClick={() => void say({ choice: "deny" })}>
            End the run
          </button>
        </div>
      )}
    </div>
  );
}
