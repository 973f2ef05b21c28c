/** Which guards are asked, and about which threads. */

import type { FormEvent } from "react";

import { useApp } from "../../state/app";
import { type Asked, GUARDS, type Guards } from "./request";
import panel from "../panels.module.css";
import styles from "./replay.module.css";

const RULES = [
  ["deny", "Deny", "Bash(git push *)"],
  ["ask", "Ask", "Write(docs/**)"],
  ["allow", "Allow", "Bash(ls *)"],
] as const;

interface Props {
  asked: Asked;
  change: (asked: Asked) => void;
  busy: boolean;
  run: () => void;
}

export function Form({ asked, change, busy, run }: Props) {
  const submit = (event: FormEvent) => {
    event.preventDefault();
    run();
  };
  return (
    <form className={styles.replayForm} onSubmit={submit}>
      <Scope asked={asked} change={change} />
      <label className={panel.field}>
        Guards
        <select value={asked.guards} onChange={(event) => change({ ...asked, guards: event.target.value as Guards })}>
          {GUARDS.map((one) => (
            <option key={one.id} value={one.id}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <p className={panel.note}>{GUARDS.find((one) => one.id === asked.guards)!.says}</p>
      <fieldset>
        <legend>Additional rules, one per line</legend>
        {RULES.map(([kind, title, example]) => (
          <label key={kind} className={panel.field}>
            {title}
            <textarea
              rows={Math.max(1, asked[kind].split("\n").length)}
              value={asked[kind]}
              placeholder={example}
              spellCheck={false}
              onChange={(event) => change({ ...asked, [kind]: event.target.value })}
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

function Scope({ asked, change }: { asked: Asked; change: (asked: Asked) => void }) {
  const agents = useApp((state) => state.agents);
  const agent = useApp((state) => state.agent);
  const thread = useApp((state) => state.thread);
  const name = agents.find((one) => one.agent_id === agent)?.name ?? agent;
  return (
    <label className={panel.field}>
      Threads
      <select
        value={asked.thread ? "this" : "all"}
        onChange={(event) => change({ ...asked, thread: event.target.value === "this" ? thread : "" })}
      >
        <option value="all">All my threads with {name}</option>
        {thread && <option value="this">The open thread</option>}
      </select>
    </label>
  );
}
