/** Questions of the open thread, outside of what was said: exactly what will be done, and the answers there are. */

import { useState } from "react";

import type { Approval } from "../api";
import { answer, useApp } from "../state/app";
import { AboutCall } from "./AboutCall";

export function Dialogs() {
  const asked = useApp((state) => state.approvals.find((one) => one.thread_id === state.thread));
  return asked ? <Ask key={asked.id} asked={asked} /> : null;
}

export function Ask({ asked }: { asked: Approval }) {
  const [words, setWords] = useState("");
  const [args, setArgs] = useState<string | null>(null);
  const changed = args === null ? undefined : parsed(args);
  return (
    <section className="ask" role="alertdialog" aria-label="The agent asks" aria-describedby={`ask-${asked.id}`}>
      <h2 id={`ask-${asked.id}`}>{asked.question}</h2>
      {args === null ? <AboutCall tool={asked.tool ?? ""} args={asked.args ?? {}} /> : <textarea aria-label="Arguments, as JSON" aria-invalid={changed === null} rows={8} className="mono" value={args} onChange={(event) => setArgs(event.target.value)} />}
      <div className="choices">
        <button className="main" autoFocus disabled={changed === null} onClick={() => void answer(asked.id, { choice: "allow", ...(changed ? { args: changed } : {}) })}>Allow</button>
        <button onClick={() => void answer(asked.id, { choice: "deny", words })}>Deny</button>
        <button onClick={() => void answer(asked.id, { choice: "allow_session" })} disabled={args !== null}>Allow in this thread</button>
        <button onClick={() => void answer(asked.id, { choice: "allow_always" })} disabled={args !== null}>Always allow this</button>
        {asked.args && <button onClick={() => setArgs(args === null ? JSON.stringify(asked.args, null, 2) : null)}>{args === null ? "Edit" : "As it was"}</button>}
      </div>
      <label>Why not, or what instead: <input value={words} onChange={(event) => setWords(event.target.value)} /></label>
    </section>
  );
}

function parsed(text: string): Record<string, never> | null {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, never>) : null;
  } catch {
    return null;
  }
}
