/** Why a call has its outcome: hook decisions, questions, and the executed operation. */

import { useState } from "react";

import * as api from "../api";
import { Show } from "../panels/States";
import { useLoad } from "../panels/useLoad";
import { useApp } from "../state/app";
import type { Why as Verdict } from "../state/fold";
import styles from "./chat.module.css";

export function Why({ call, seen }: { call: string; seen: Verdict[] }) {
  const thread = useApp((state) => state.thread);
  const [opened, setOpened] = useState(false);
  return (
    <details className={styles.why} onToggle={(event) => event.currentTarget.open && setOpened(true)}>
      <summary>Why{seen.length > 0 && <small> {summarizeVerdicts(seen)}</small>}</summary>
      {opened && <Reasons thread={thread} call={call} />}
    </details>
  );
}

function Reasons({ thread, call }: { thread: string; call: string }) {
  const reasons = useLoad(() => api.threads.why(thread, call), [thread, call]);
  return (
    <Show of={reasons} what="the reasons">
      {(found) => <ReasonList reasons={found} />}
    </Show>
  );
}

function summarizeVerdicts(verdicts: Verdict[]): string {
  const telling = verdicts.find((one) => !["pass", "allow"].includes(one.verdict)) ?? verdicts.at(-1)!;
  return `${telling.hook}: ${telling.verdict}`;
}

function ReasonList({ reasons }: { reasons: api.Reasons }) {
  const verdicts = reasons.verdicts ?? [];
  return (
    <div className={styles.told} tabIndex={0} role="group" aria-label="Reasons">
      {verdicts.length ? <Verdicts rows={verdicts} /> : <p className="empty">No hook gave a verdict.</p>}
      {(reasons.questions ?? []).map((asked, at) => (
        <p key={at}>
          {asked.question} {describeAnswer(asked)}
        </p>
      ))}
      <Sealed reasons={reasons} />
    </div>
  );
}

type ApprovalReason = NonNullable<api.Reasons["questions"]>[number];

function describeAnswer({ allowed, by, reason, scope }: ApprovalReason): string {
  if (allowed === undefined || allowed === null) return "Not answered.";
  const how = scope === "session" ? ", for this thread" : scope === "always" ? ", always" : "";
  return `${by || "The user"} ${allowed ? "allowed" : "denied"} it${how}${!allowed && reason ? `: ${reason}` : "."}`;
}

/** The sealed arguments, where they differ from the model's. */
function Sealed({ reasons }: { reasons: api.Reasons }) {
  const last = reasons.attempts?.at(-1);
  const changed = Object.entries(reasons.args).some(
    ([name, value]) => JSON.stringify(last?.args[name]) !== JSON.stringify(value),
  ); // additions are defaults
  if (!last || !changed) return null;
  return (
    <>
      <p>It ran with changed arguments:</p>
      <pre tabIndex={0} aria-label="Sealed arguments">
        {JSON.stringify(last.args, null, 2)}
      </pre>
    </>
  );
}

function Verdicts({ rows }: { rows: NonNullable<api.Reasons["verdicts"]> }) {
  return (
    <table aria-label="Verdicts of hooks">
      <thead>
        <tr>
          <th>hook</th>
          <th>position</th>
          <th>verdict</th>
          <th>reason</th>
          <th>ms</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, at) => (
          <tr key={at} data-verdict={row.verdict}>
            <td>{row.hook}</td>
            <td>{row.position}</td>
            <td>{row.verdict}</td>
            <td>{row.reason || describeChanges(row.changed)}</td>
            <td>{(row.ms ?? 0).toFixed(2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const describeChanges = (changed: unknown): string =>
  changed && typeof changed === "object" && Object.keys(changed).length
    ? `changed ${Object.keys(changed).join(", ")}`
    : "";
