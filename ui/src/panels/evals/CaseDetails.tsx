/** The details of one case: the checks, the tool calls and the answer of each variant. */

import { useEffect, useRef } from "react";

import type { EvalCall, EvalCaseResult, EvalCaseRow } from "../../api";
import { AboutCall } from "../../chat/AboutCall";
import { formatPlural } from "../../parts/amounts";
import { formatFigures } from "./cases";
import panel from "../panels.module.css";
import styles from "./evals.module.css";

const COLOURS: Record<string, string> = { ran: "good", blocked: "bad", denied: "warm", invalid: "bad" };

interface Props {
  found: EvalCaseRow;
  variants: string[];
  openThread: (id: string) => void;
}

export function CaseDetails({ found, variants, openThread }: Props) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => head.current?.focus(), []);
  return (
    <section aria-label={`Case ${found.id}`} className={styles.evalCase}>
      <h3 ref={head} tabIndex={-1}>
        {found.id}
      </h3>
      <pre>{found.input}</pre>
      {found.thread && <button onClick={() => openThread(found.thread)}>Open the thread</button>}
      {variants.map((name) => found.results[name] && <Result key={name} name={name} result={found.results[name]} />)}
    </section>
  );
}

function Result({ name, result }: { name: string; result: EvalCaseResult }) {
  return (
    <section aria-label={name}>
      <h4>{name}</h4>
      <p className={panel.note}>
        {result.outcome}
        {result.reason && result.reason !== result.outcome ? ` (${result.reason})` : ""},{" "}
        {formatPlural(result.steps, "step")}, score {formatFigures(result)}
      </p>
      <ul className={panel.rows}>
        {result.checks.map((check, at) => (
          <li key={at}>
            <span className={panel.chip} data-tone={check.passed ? "good" : "bad"}>
              {check.passed ? "pass" : "fail"}
            </span>{" "}
            {check.name}
            {check.detail ? `: ${check.detail}` : ""}
          </li>
        ))}
      </ul>
      {result.calls.length > 0 && (
        <ol className={styles.evalCalls}>
          {result.calls.map((call, at) => (
            <Call key={at} call={call} />
          ))}
        </ol>
      )}
      {result.text && <pre>{result.text}</pre>}
    </section>
  );
}

function Call({ call }: { call: EvalCall }) {
  const by = call.hook ? ` by ${call.hook}` : "";
  return (
    <li>
      <b>{call.tool}</b>{" "}
      {call.asked && (
        <span className={panel.chip} data-tone="warm">
          asked
        </span>
      )}{" "}
      <span className={panel.chip} data-tone={COLOURS[call.decision]}>
        {call.decision}
      </span>
      {(by || call.reason) && (
        <p className={panel.note}>
          {call.decision}
          {by}
          {call.reason ? `: ${call.reason}` : ""}
        </p>
      )}
      <details>
        <summary>Arguments and result</summary>
        <AboutCall tool={call.tool} args={call.args} />
        {call.output && <pre>{call.output}</pre>}
      </details>
    </li>
  );
}
