/** The form of a replay: the guards to apply, and the threads. */

import type { FormEvent } from "react";

import { useApp } from "../../state/app";
import { type ReplayForm, GUARDS, type Guards } from "./request";
import panel from "../panels.module.css";
import styles from "./replay.module.css";

const RULES = [
  ["deny", "Deny", "Bash(git push *)"],
  ["ask", "Ask", "Write(docs/**)"],
  ["allow", "Allow", "Bash(ls *)"],
] as const;

interface Props {
  form: ReplayForm;
  change: (form: ReplayForm) => void;
  busy: boolean;
  run: () => void;
}

export function Form({ form, change, busy, run }: Props) {
  const submit = (event: FormEvent) => {
    event.preventDefault();
    run();
  };
  return (
    <form className={styles.replayForm} onSubmit={submit}>
      <Scope form={form} change={change} />
      <label className={panel.field}>
        Guards
        <select value={form.guards} onChange={(event) => change({ ...form, guards: event.target.value as Guards })}>
          {GUARDS.map((one) => (
            <option key={one.id} value={one.id}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <p className={panel.note}>{GUARDS.find((one) => one.id === form.guards)!.says}</p>
      <fieldset>
        <legend>Additional rules, one per line</legend>
        {RULES.map(([kind, title, example]) => (
          <label key={kind} className={panel.field}>
            {title}
            <textarea
              rows={Math.max(1, form[kind].split("\n").length)}
              value={form[kind]}
              placeholder={example}
              spellCheck={false}
              onChange={(event) => change({ ...form, [kind]: event.target.value })}
            />
          </label>
        ))}
      </fieldset>
      <button className="main" disabled={busy}>
        {busy ? "Replaying…" : "Replay"}
      </button>
    </form>
  );
}

function Scope({ form, change }: { form: ReplayForm; change: (form: ReplayForm) => void }) {
  const agents = useApp((state) => state.agents);
  const agent = useApp((state) => state.agent);
  const thread = useApp((state) => state.thread);
  const name = agents.find((one) => one.agent_id === agent)?.name ?? agent;
  return (
    <label className={panel.field}>
      Threads
      <select
        value={form.thread ? "this" : "all"}
        onChange={(event) => change({ ...form, thread: event.target.value === "this" ? thread : "" })}
      >
        <option value="all">All my threads with {name}</option>
        {thread && <option value="this">The open thread</option>}
      </select>
    </label>
  );
}
