/** One use of a tool: its arguments, what it prints, what came of it, and why. */

import { lazy, Suspense, useState } from "react";

import * as api from "../api";
import { duration } from "../parts/spans";
import { attempt, useApp } from "../state/app";
import type { Call, Item } from "../state/fold";

const Nested = lazy(() => import("./Nested"));
const MARKS: Record<Call["state"], string> = { waiting: "○", running: "◐", asking: "?", done: "●", failed: "✕" };

export function CallCard({ call }: { call: Call }) {
  const asked = useApp((state) => state.approvals.some((one) => one.call_id === call.id));
  const state = asked ? "asking" : call.state;
  const result = call.error || call.output || call.live;
  return (
    <details className={`call ${state}`} open={state === "running" || state === "failed"}>
      <summary>
        <span className="mark" aria-hidden="true">{MARKS[state]}</span>
        <b>{call.name || "tool"}</b> <code className="gist">{gist(call.args)}</code>
        <small>{state === "asking" ? "waits for you" : call.ended && call.began ? duration(call.ended - call.began) : state}</small>
      </summary>
      <pre className="args" aria-label="Arguments">{call.argsText && !Object.keys(call.args).length ? call.argsText : JSON.stringify(call.args, null, 2)}</pre>
      {result && <pre className={call.error ? "output failed" : "output"} aria-label={call.error ? "Error" : "Output"} tabIndex={0}>{result}</pre>}
      {call.child && <Child agent={call.child.agent} items={call.child.items} prompt={call.child.prompt} outcome={call.child.outcome} />}
      {(call.state === "done" || call.state === "failed") && <Why call={call.id} />}
    </details>
  );
}

export function gist(args: Record<string, unknown>): string {
  const first = args["command"] ?? args["path"] ?? args["pattern"] ?? args["query"] ?? args["url"] ?? Object.values(args)[0];
  const text = typeof first === "string" ? first : first === undefined ? "" : JSON.stringify(first);
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

function Child({ agent, items, prompt, outcome }: { agent: string; items: Item[]; prompt: string; outcome: string }) {
  return (
    <section className="child" aria-label={`Subagent ${agent}`}>
      <h4>{agent} <small>{outcome || "working"}</small></h4>
      <p>{prompt}</p>
      <Suspense fallback={null}><Nested items={items} /></Suspense>
    </section>
  );
}

function Why({ call }: { call: string }) {
  const thread = useApp((state) => state.thread);
  const [reasons, setReasons] = useState<api.Reasons | null>(null);
  const load = () => void attempt(() => api.threads.why(thread, call)).then((found) => found && setReasons(found));
  if (!reasons) return <button className="plain" onClick={load}>Why?</button>;
  return (
    <div className="why">
      <table aria-label="What hooks said">
        <thead><tr><th>hook</th><th>position</th><th>verdict</th><th>why</th><th>ms</th></tr></thead>
        <tbody>
          {(reasons.verdicts ?? []).map((row, at) => (
            <tr key={at} className={row.verdict}><td>{row.hook}</td><td>{row.position}</td><td>{row.verdict}</td><td>{row.reason}</td><td>{(row.ms ?? 0).toFixed(2)}</td></tr>
          ))}
        </tbody>
      </table>
      {!reasons.verdicts?.length && <p className="empty">No hook had anything to say.</p>}
    </div>
  );
}
