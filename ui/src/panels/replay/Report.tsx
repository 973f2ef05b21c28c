/** A replay report: the first changed decision of each thread. */

import type { ReplayReport } from "../../api";
import { AboutCall } from "../../chat/AboutCall";
import { formatPlural } from "../../parts/amounts";
import { joinClasses } from "../../parts/classes";
import panel from "../panels.module.css";
import styles from "./replay.module.css";

const PAST = { allow: "was allowed", ask: "needed approval", block: "was blocked" };
const NOW = { allow: "would be allowed", ask: "would need approval", block: "would be blocked" };
const COLOURS = { allow: "good", ask: "warm", block: "bad" };

export function Report({ report, open }: { report: ReplayReport; open: (thread: string) => void }) {
  const looked = `${formatPlural(report.uses, "tool use")} in ${formatPlural(report.threads, "thread")}`;
  return (
    <section aria-label="Replay result" aria-live="polite">
      <h3>
        {report.changes.length ? `Changed verdicts in ${formatPlural(report.changes.length, "thread")}` : "No changes"}
      </h3>
      <p className={panel.note}>
        {report.threads
          ? `Replayed ${looked}. Each thread is replayed up to its first changed verdict.`
          : "No threads to replay. Start a thread with this agent, or choose another agent."}
        {report.more ? " Only the latest threads were replayed." : ""}
      </p>
      <ul className={panel.rows}>
        {report.changes.map((change) => (
          <One key={`${change.thread_id} ${change.seq}`} change={change} open={() => open(change.thread_id)} />
        ))}
      </ul>
      {report.skipped.length > 0 && (
        <details>
          <summary>{formatPlural(report.skipped.length, "tool use")} skipped</summary>
          <ul className={panel.note}>
            {report.skipped.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function One({ change, open }: { change: ReplayReport["changes"][number]; open: () => void }) {
  return (
    <li className={styles.changed}>
      <div className={joinClasses(panel.line, styles.line)}>
        <b>{change.tool}</b>
        <span>
          {PAST[change.recorded]},{" "}
          <span className={panel.chip} data-tone={COLOURS[change.now]}>
            {NOW[change.now]}
          </span>
        </span>
        <button className="plain" onClick={open}>
          Open the thread
        </button>
      </div>
      {change.reason && <p className={panel.note}>{change.reason}</p>}
      <details>
        <summary>
          In “{change.title || "Untitled"}”, entry {change.seq}
        </summary>
        <AboutCall tool={change.tool} args={change.args} />
      </details>
    </li>
  );
}
