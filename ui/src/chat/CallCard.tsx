/** A tool call: arguments, live output, result, and reasons. */

import { memo, useContext, useEffect, useMemo, useState } from "react";

import { formatValue } from "../api/values";
import { LabelMark } from "../parts/LabelMark";
import { ReadOnly } from "../parts/readOnly";
import { OutputText } from "../parts/OutputText";
import { formatDuration } from "../parts/spans";
import { Icon } from "../shell/Icon";
import { useApp } from "../state/app";
import type { Call } from "../state/fold";
import { AboutCall } from "./AboutCall";
import { showControls } from "../parts/visible";
import { failedExit, formatResult, summarizeArguments } from "./result";
import { Subagent } from "./Subagent";
import { Why } from "./Why";
import styles from "./chat.module.css";

type State = Call["state"];
const STATES: Record<State, string> = {
  waiting: "queued",
  running: "running",
  asking: "needs approval",
  done: "done",
  failed: "failed",
};
const WRITES = new Set(["write_file", "edit_file"]);

const byHand = new Map<string, boolean>(); // a manual open or close survives scrolling away

/** The state in words, with the reason of a failure. */
function describeState(call: Call, state: State): string {
  if (state === "failed" && call.deniedBy) return `denied by ${call.deniedBy}`;
  const code = state === "done" ? failedExit(call.output) : 0;
  return code ? `exit code ${code}` : STATES[state];
}

export const CallCard = memo(function CallCard({ call }: { call: Call }) {
  const asked = useApp((state) =>
    state.approvals.some((one) => one.call_id === call.id && one.thread_id === state.thread),
  );
  const state: State = asked ? "asking" : call.state;
  const words = useMemo(() => describeState(call, state), [call, state]);
  const bad = state === "done" && words !== STATES.done;
  const [opened, setOpened] = useState(byHand.get(call.id) ?? null); // null: as it is by itself
  const shown =
    opened ??
    (state === "running" ||
      state === "failed" ||
      (call.child !== null && !call.child.outcome && state !== "done") ||
      (call.calls.length > 0 && state !== "done"));
  const toggle = () => {
    byHand.set(call.id, !shown);
    setOpened(!shown);
  };
  return (
    <div
      className={styles.call}
      data-state={bad ? "failed" : state}
      role="group"
      aria-label={`${call.name || "tool"}: ${words}`}
    >
      <button className={styles.callHead} aria-expanded={shown} onClick={toggle}>
        <span className={styles.mark} aria-hidden="true" />
        <b>{call.name || "tool"}</b> <code className={styles.gist}>{summarizeArguments(call.args)}</code>
        <LabelMark label={call.label} source={call.name} />
        <small>
          <Took call={call} state={state} words={words} />
        </small>
      </button>
      {shown && <Inside call={call} />}
    </div>
  );
});

/** The duration of a call, or its duration so far. */
function Took({ call, state, words }: { call: Call; state: State; words: string }) {
  const live = state === "running" && call.began > 0;
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!live) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [live]);
  if (live && now - call.began > 1_500) return <>{formatDuration(now - call.began)}</>;
  const ms = call.ms || (call.began && call.ended ? call.ended - call.began : 0);
  const told = words === STATES.done ? "" : `${words}, `;
  return <>{(state === "done" || state === "failed") && ms ? `${told}${formatDuration(ms)}` : words}</>;
}

function Inside({ call }: { call: Call }) {
  const readOnly = useContext(ReadOnly);
  const over = call.state === "done" || call.state === "failed";
  return (
    <div className={styles.callInside}>
      {typeof call.args["code"] === "string" && call.name === "run_code" ? (
        <Program code={call.args["code"]} calls={call.calls} />
      ) : (
        <Arguments call={call} />
      )}
      {call.error ? (
        <pre className={styles.failed} aria-label="Error" tabIndex={0}>
          {call.error}
        </pre>
      ) : (
        <Output call={call} />
      )}
      {call.child && <Subagent child={call.child} />}
      {over && !readOnly && (
        <div className={styles.callFoot}>
          <Why call={call.id} seen={call.why} />
          {WRITES.has(call.name) && call.state === "done" && <OpenFile path={formatValue(call.args["path"])} />}
        </div>
      )}
    </div>
  );
}

/** A program, with each call below the line that made it. */
function Program({ code, calls }: { code: string; calls: Call[] }) {
  const lines = code.replace(/\n$/, "").split("\n");
  return (
    <ol className={styles.program} aria-label="Program">
      {lines.map((line, at) => (
        <li key={at}>
          <code>{showControls(line)}</code>
          {calls
            .filter((call) => call.lines[1] === at + 1)
            .map((call) => (
              <CallCard key={call.id} call={call} />
            ))}
        </li>
      ))}
    </ol>
  );
}

function Arguments({ call }: { call: Call }) {
  const { args, argsText, name } = call;
  if (argsText && !Object.keys(args).length)
    return (
      <pre className={styles.args} aria-label="Arguments" tabIndex={0}>
        {argsText}
      </pre>
    );
  return <AboutCall tool={name} args={args} />; // the old file content is not available any more
}

function Output({ call }: { call: Call }) {
  const { text, error, exit, note } = useMemo(() => formatResult(call.output), [call.output]);
  if (!call.output)
    return call.live ? (
      <pre aria-label="Output so far" tabIndex={0}>
        <OutputText text={call.live} />
      </pre>
    ) : null;
  return (
    <>
      {text && (
        <pre aria-label="Output" tabIndex={0}>
          <OutputText text={text} />
        </pre>
      )}
      {error && (
        <pre className={styles.failed} aria-label="Error output" tabIndex={0}>
          <OutputText text={error} />
        </pre>
      )}
      {note && <p className={styles.exit}>Shortened: {note}.</p>}
      {exit !== null && (exit !== 0 || (!text && !error)) && (
        <p className={styles.exit}>{exit === 0 ? "No output." : `Exit code ${exit}.`}</p>
      )}
    </>
  );
}

function OpenFile({ path }: { path: string }) {
  const open = () => void import("../canvas/open").then(({ openFile }) => openFile(path));
  return (
    <button className="plain" onClick={open}>
      <Icon name="canvas" /> Open in canvas
    </button>
  );
}
