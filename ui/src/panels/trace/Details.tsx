/** All that is known of one span. */

import type { MessageLabel } from "../../api";
import { formatCount, formatDollars } from "../../parts/amounts";
import { LabelMark } from "../../parts/LabelMark";
import { formatDuration, type Row } from "../../parts/spans";
import { Call } from "./Call";
import { joinClasses } from "../../parts/classes";
import panel from "../panels.module.css";
import styles from "./trace.module.css";

const QUIET = new Set([
  "run_id",
  "gen_ai.conversation.id",
  "gen_ai.operation.name",
  "gen_ai.tool.name",
  "gen_ai.tool.call.id",
  "tool_name",
  "tool_call_id",
  "wick.trusted",
  "wick.private",
]); // shown elsewhere

export function Details({ row, run, close, zoom }: { row: Row; run: string; close: () => void; zoom: () => void }) {
  const { span } = row;
  const label = labelOf(span.attributes ?? {});
  return (
    <section className={joinClasses(styles.spanDetails, panel.panel)} aria-label={`Span ${row.label}`}>
      <header className={joinClasses(panel.line, styles.line)}>
        <b>{row.label}</b>{" "}
        <small>
          {row.kind}, {row.open ? "running" : formatDuration(row.ms)}, begun after {formatDuration(row.from)}
        </small>
        <LabelMark label={label} source={row.label} />
        <button className="plain" onClick={zoom}>
          Zoom
        </button>
        <button className="plain" onClick={close} aria-label="Close the span">
          ✕
        </button>
      </header>
      {span.error && <p className={styles.failed}>{span.error}</p>}
      {row.kind === "model" && !row.open ? (
        <>
          <Call run={run} span={row.key} />
          <details>
            <summary>Attributes</summary>
            <Facts row={row} />
          </details>
        </>
      ) : (
        <Facts row={row} />
      )}
      {(span.events ?? []).length > 0 && <Events events={span.events!} />}
      {(span.why ?? []).length > 0 && <Why rows={span.why!} />}
    </section>
  );
}

function Facts({ row }: { row: Row }) {
  const facts = Object.entries(row.span.attributes ?? {}).filter(([name]) => !QUIET.has(name));
  return (
    <dl className={panel.facts}>
      {row.tokens > 0 && (
        <>
          <dt>tokens</dt>
          <dd>{formatCount(row.tokens)}</dd>
        </>
      )}
      {row.kind === "model" && (
        <>
          <dt>cost</dt>
          <dd>{row.cost === null ? "unknown" : formatDollars(row.cost)}</dd>
        </>
      )}
      {facts.map(([name, value]) => (
        <Fact key={name} name={name} value={value} />
      ))}
    </dl>
  );
}

/** Return the label of a tool's result; nothing without information flow. */
export function labelOf(attributes: Record<string, unknown>): MessageLabel | null {
  const { "wick.trusted": trusted, "wick.private": sources } = attributes;
  if (typeof trusted !== "boolean") return null;
  return { trusted, private: Array.isArray(sources) ? sources.map(String) : [] };
}

function Fact({ name, value }: { name: string; value: unknown }) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return (
    <>
      <dt>{name.replace("gen_ai.", "")}</dt>
      <dd>{text.length > 120 || text.includes("\n") ? <pre tabIndex={0}>{text}</pre> : <code>{text}</code>}</dd>
    </>
  );
}

function Events({ events }: { events: NonNullable<Row["span"]["events"]> }) {
  return (
    <>
      <h3>Events</h3>
      <ul className={panel.rows}>
        {events.map((event, at) => (
          <li key={at}>
            <b>{event.name}</b> <code>{JSON.stringify(event.attributes ?? {})}</code>
          </li>
        ))}
      </ul>
    </>
  );
}

function Why({ rows }: { rows: NonNullable<Row["span"]["why"]> }) {
  return (
    <div className={panel.wide} tabIndex={0} role="group" aria-label="Verdicts">
      <table aria-label="Verdicts of hooks">
        <thead>
          <tr>
            <th>hook</th>
            <th>position</th>
            <th>verdict</th>
            <th>reason</th>
            <th className={panel.number}>ms</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((why, at) => (
            <tr key={at} data-verdict={why.verdict}>
              <td>{why.hook}</td>
              <td>{why.position}</td>
              <td>
                {why.verdict}
                {why.shadow ? " (shadow)" : ""}
              </td>
              <td>
                {why.reason}
                {why.changed ? ` changed ${Object.keys(why.changed).join(", ")}` : ""}
              </td>
              <td className={panel.number}>{(why.ms ?? 0).toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
