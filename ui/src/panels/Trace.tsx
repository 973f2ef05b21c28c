/** The trace of a run: a waterfall of steps, model calls, tools and hooks, with tokens and cost. */

import { useMemo, useState } from "react";

import * as api from "../api";
import { formatCount, formatDollars, formatPlural } from "../parts/amounts";
import { formatDuration, layOutSpans, totalDuration } from "../parts/spans";
import { patchApp, useApp } from "../state/app";
import { Show, Trouble } from "./States";
import { runTitle, useProgress, useRun } from "./trace/runs";
import { Waterfall } from "./trace/Waterfall";
import { useLoad } from "./useLoad";
import panel from "./panels.module.css";
import styles from "./trace/trace.module.css";

export default function Trace() {
  const thread = useApp((state) => state.thread);
  const { runs, run, error, busy, reload } = useRun(thread);
  const [beside, setBeside] = useState("");
  const other = runs.find((one) => one.run_id === beside && one.run_id !== run?.run_id);
  if (!thread) return <p className="empty">Open or start a thread to see the traces of its runs.</p>;
  if (error && !run) return <Trouble text={error} again={reload} />;
  if (!run)
    return (
      <p className={busy ? "waiting" : "empty"} role="status">
        {busy ? "Loading runs…" : "This thread has no runs yet."}
      </p>
    );
  return (
    <div className={styles.trace}>
      {error && <Trouble text={error} again={reload} />}
      <div className={styles.traceHead}>
        <label>
          Run{" "}
          <select value={run.run_id} onChange={(event) => patchApp({ run: event.target.value })}>
            {runs.map((one) => (
              <option key={one.run_id} value={one.run_id}>
                {runTitle(one)}
              </option>
            ))}
          </select>
        </label>
        {runs.length > 1 && (
          <label>
            Beside{" "}
            <select value={other?.run_id ?? ""} onChange={(event) => setBeside(event.target.value)}>
              <option value="">nothing</option>
              {runs
                .filter((one) => one.traced && one.run_id !== run.run_id)
                .map((one) => (
                  <option key={one.run_id} value={one.run_id}>
                    {runTitle(one)}
                  </option>
                ))}
            </select>
          </label>
        )}
      </div>
      {other ? (
        <div className={styles.sideBySide}>
          {[run, other].map((one) => (
            <section key={one.run_id} aria-label={`Run ${runTitle(one)}`}>
              <h3>{runTitle(one)}</h3>
              {one.traced ? <OneRun run={one.run_id} /> : <Untraced run={one} />}
            </section>
          ))}
        </div>
      ) : run.traced ? (
        <OneRun key={run.run_id} run={run.run_id} />
      ) : (
        <Untraced run={run} />
      )}
    </div>
  );
}

function Untraced({ run }: { run: api.ThreadRun }) {
  if (run.ended == null)
    return (
      <p className="empty" role="status">
        This run is in progress. Its trace is available when it ends: another server performs it, or the hook “recorder”
        is not enabled.
      </p>
    );
  return (
    <p className="empty">
      No trace of this run. Traces of the latest runs of a thread are stored if the hook “recorder” is enabled in the
      Agent panel.
    </p>
  );
}

function OneRun({ run }: { run: string }) {
  const trace = useLoad(() => api.runs.trace(run), [run], useProgress(run));
  return (
    <Show of={trace} what="the trace">
      {(found) => <Found trace={found} />}
    </Show>
  );
}

function Found({ trace }: { trace: api.Trace }) {
  const rows = useMemo(() => layOutSpans(trace.spans, true), [trace]);
  const sums = useMemo(() => summarizeRows(rows), [rows]);
  return (
    <>
      <ul className={styles.sums} aria-label="Summary">
        {sums.map((text) => (
          <li key={text} className={panel.chip}>
            {text}
          </li>
        ))}
      </ul>
      {(trace.left_out ?? 0) > 0 && (
        <p className={styles.note}>{formatPlural(trace.left_out ?? 0, "span")} were not stored in full.</p>
      )}
      <Waterfall rows={rows} run={trace.run} />
    </>
  );
}

export function summarizeRows(rows: ReturnType<typeof layOutSpans>): string[] {
  const models = rows.filter((row) => row.kind === "model");
  const tools = rows.filter((row) => row.kind === "tool");
  const cost = models.reduce((sum, row) => sum + (row.cost ?? 0), 0);
  const unpriced = models.filter((row) => row.cost === null && row.tokens > 0).length;
  const tokens = models.reduce((sum, row) => sum + row.tokens, 0);
  const price =
    models.length === unpriced
      ? "price unknown"
      : `${formatDollars(cost)}${unpriced ? ` and ${unpriced} of unknown price` : ""}`;
  return [
    rows.some((row) => row.open) ? "running" : formatDuration(totalDuration(rows)),
    formatPlural(models.length, "model call"),
    formatPlural(tools.length, "tool call"),
    `${formatCount(tokens)} tokens`,
    price,
  ];
}
