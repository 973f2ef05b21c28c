/** An approval: the exact operation and the possible answers. */

import { useId, useState } from "react";

import type { Approval, Decision } from "../api";
import { showControls } from "../parts/visible";
import { app, useApp, useDraft } from "../state/app";
import { answerQuestion } from "../state/talk";
import { AboutCall } from "./AboutCall";
import { Inquiry } from "./Inquiry";
import { LostFiles } from "./LostFiles";
import { answerKey, KeyHint, QuestionCard } from "./QuestionCard";
import { hasSources, questionTitle, Targets } from "./Targets";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

/** `title` is the element id of the question, for its container. */
export function Ask({ asked, title }: { asked: Approval; title: string }) {
  if (asked.about?.["files"] === "missing") return <LostFiles asked={asked} title={title} />;
  return asked.tool === "ask_user" && asked.about?.["kind"] ? (
    <Inquiry asked={asked} title={title} />
  ) : (
    <Consent asked={asked} title={title} />
  );
}

function Consent({ asked, title }: { asked: Approval; title: string }) {
  const field = useId();
  const [words = "", setWords] = useDraft("deny", asked.id); // the draft survives a switch of threads
  const [args, setArgs] = useDraft("args", asked.id); // as JSON, while they are edited
  const [busy, setBusy] = useState(false);
  const lasting = asked.about?.["lasting"] === true; // questions of rules and other guards are asked each time
  const rules = asked.rules ?? [];
  const others = useApp((state) => sameStep(state.approvals, asked).length);
  const changed = args === undefined ? undefined : parseArguments(args);
  const say = async (decision: Decision) => {
    setBusy(true);
    await answerQuestion(asked, decision);
    setBusy(false);
    if (app.get().approvals.some((one) => one.id === asked.id)) return; // it was not accepted
    setWords(null);
    setArgs(null);
  };
  return (
    <QuestionCard>
      <h2 id={title}>{showControls(questionTitle(asked))}</h2>
      <Targets asked={asked} />
      {args === undefined ? (
        <AboutCall
          tool={asked.tool ?? ""}
          args={asked.args ?? {}}
          shell={asked.shell ?? null}
          of={{ agent: asked.agent_id, thread: asked.thread_id }}
        />
      ) : (
        <EditArgs args={args} wrong={changed === null} set={setArgs} />
      )}
      <div className="choices">
        <button
          className="main"
          {...answerKey("y")}
          disabled={busy || changed === null}
          onClick={() => void say({ choice: "allow", ...(changed ? { args: changed } : {}) })}
        >
          {args === undefined ? "Allow" : "Allow with changes"} <KeyHint of="y" />
        </button>
        {lasting && (
          <button
            disabled={busy || args !== undefined}
            onClick={() => void say({ choice: "allow_session" })}
            title="Do not ask again for the same tool use in this thread"
          >
            Allow for this thread
          </button>
        )}
        {rules.length > 0 && (
          <button
            disabled={busy || args !== undefined}
            onClick={() => void say({ choice: "allow_session", rules })}
            title="Do not ask again for such commands in this thread"
          >
            Allow <Patterns rules={rules} /> in this thread
          </button>
        )}
        {lasting && (
          <button
            disabled={busy || args !== undefined}
            onClick={() => void say({ choice: "allow_always" })}
            title="Adds a grant: never ask again for this tool with exactly these arguments"
          >
            Always allow
          </button>
        )}
        {hasSources(asked) && (
          <button
            disabled={busy || args !== undefined}
            onClick={() => void say({ choice: "allow_source" })}
            title="For the rest of this run, the quoted text may name such targets of this tool"
          >
            Allow and trust the source
          </button>
        )}
        {others > 0 && (
          <button
            disabled={busy || args !== undefined}
            onClick={() => void say({ choice: "allow_step" })}
            title="Also allow the other calls of this step that ask"
          >
            Allow all {others + 1}
          </button>
        )}
        {asked.args && (
          <button
            {...answerKey("e")}
            disabled={busy}
            onClick={() => setArgs(args === undefined ? JSON.stringify(asked.args, null, 2) : null)}
          >
            {args === undefined ? "Edit" : "Reset"} <KeyHint of="e" />
          </button>
        )}
      </div>
      <form
        className={styles.deny}
        onSubmit={(event) => {
          event.preventDefault();
          void say({ choice: "deny", words });
        }}
      >
        <label className="visually-hidden" htmlFor={field}>
          Reason, or what to do instead
        </label>
        <input
          id={field}
          maxLength={10_000}
          placeholder="Reason, or what to do instead"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <button className="no" {...answerKey("n")} disabled={busy}>
          Deny <KeyHint of="n" />
        </button>
        {others > 0 && (
          <button type="button" className="no" disabled={busy} onClick={() => void say({ choice: "deny_step", words })}>
            Deny all {others + 1}
          </button>
        )}
      </form>
      {others > 0 && <OtherCalls asked={asked} />}
      <Sealed asked={asked} />
    </QuestionCard>
  );
}

/** The patterns of rules: `cp *` of `execute(cp *)`. */
function Patterns({ rules }: { rules: string[] }) {
  return rules.map((rule, at) => (
    <span key={rule}>
      {at > 0 && ", "}
      <code>{showControls(/\((.*)\)$/s.exec(rule)?.[1] ?? rule)}</code>
    </span>
  ));
}

/** The other questions of the same step that one answer can include; those of ask_user need an answer of their own. */
function sameStep(approvals: readonly Approval[], asked: Approval): Approval[] {
  return approvals.filter(
    (one) =>
      one.id !== asked.id &&
      one.thread_id === asked.thread_id &&
      Boolean(one.run_id) &&
      one.run_id === asked.run_id &&
      one.operation === "tool_use" &&
      one.tool !== "ask_user" &&
      one.about?.["files"] === undefined,
  );
}

function OtherCalls({ asked }: { asked: Approval }) {
  const approvals = useApp((state) => state.approvals);
  return (
    <details>
      <summary>The other calls of this step</summary>
      <ul aria-label="Other calls of this step">
        {sameStep(approvals, asked).map((one) => (
          <li key={one.id}>
            {showControls(questionTitle(one))} <code>{showControls(JSON.stringify(one.args ?? {}))}</code>
            <Targets asked={one} />
          </li>
        ))}
      </ul>
    </details>
  );
}

function EditArgs({ args, wrong, set }: { args: string; wrong: boolean; set: (args: string) => void }) {
  return (
    <>
      <textarea
        aria-label="Arguments as JSON"
        aria-invalid={wrong}
        autoFocus
        rows={Math.min(14, args.split("\n").length + 1)}
        className="mono"
        value={args}
        onChange={(event) => set(event.target.value)}
      />
      {wrong && (
        <p className={joinClasses(styles.hint, styles.bad)} role="alert">
          The arguments must be a JSON object: {"{…}"}.
        </p>
      )}
    </>
  );
}

/** The answer is for the sealed operation only. */
function Sealed({ asked }: { asked: Approval }) {
  return (
    <p className={joinClasses(styles.hint, styles.sealed)}>
      {asked.about?.["lasting"] !== true && (
        <>A rule or hook requires approval every time, so this approval applies only once. </>
      )}
      {asked.hash && (
        <>
          Seal <code title={asked.hash}>{asked.hash.slice(0, 12)}</code>.{" "}
        </>
      )}
      {asked.expires && <>Expires {formatExpiry(asked.expires)}.</>}
    </p>
  );
}

export function formatExpiry(at: number, now = Date.now() / 1000): string {
  const minutes = Math.round((at - now) / 60);
  if (minutes < 1) return "in a moment";
  if (minutes < 120) return `in ${minutes} min`;
  return minutes < 48 * 60 ? `in ${Math.round(minutes / 60)} h` : `on ${new Date(at * 1000).toLocaleDateString()}`;
}

function parseArguments(text: string): NonNullable<Decision["args"]> | null {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value)
      ? (value as NonNullable<Decision["args"]>)
      : null;
  } catch {
    return null;
  }
}
