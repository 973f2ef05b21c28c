/** Tokens and dollars over time, by agent and by model. */

import { useState } from "react";

import * as api from "../api";
import { formatCount, formatDollars, formatPlural, formatShort } from "../parts/amounts";
import { openConversation, useApp } from "../state/app";
import { useChangeCount } from "../state/useChanges";
import { Show } from "./States";
import { Days } from "./usage/Days";
import { Shares } from "./usage/Shares";
import { sumBy, listDays, type Measure, periodOf, type Split, stackByDay } from "./usage/sums";
import { Table } from "./usage/Table";
import { useLoad } from "./useLoad";
import panel from "./panels.module.css";
import styles from "./usage/usage.module.css";

const PERIODS = [7, 30, 90, 365];
const MEASURES: readonly (readonly [Measure, string])[] = [
  ["tokens", "Tokens"],
  ["cost", "Cost"],
  ["runs", "Runs"],
];
const SHOW: Record<Measure, (amount: number) => string> = {
  tokens: formatShort,
  cost: formatDollars,
  runs: formatCount,
};

export default function Usage() {
  const admin = useApp((state) => state.me?.role === "admin");
  const running = useApp((state) => openConversation(state).run); // the usage of a run is known at its end
  const [length, setLength] = useState(30);
  const [agent, setAgent] = useState("");
  const [everyone, setEveryone] = useState(false);
  const [measure, setMeasure] = useState<Measure>("tokens");
  const { since, until } = periodOf(length);
  const report = useLoad(
    () => api.usage.report({ since, until, agent, user: everyone ? "*" : "" }),
    [since, until, agent, everyone],
    `${running} ${useChangeCount("thread")}`,
  );
  return (
    <div className={panel.panel}>
      <div className={panel.barOfTools}>
        <select aria-label="Period" value={length} onChange={(event) => setLength(Number(event.target.value))}>
          {PERIODS.map((one) => (
            <option key={one} value={one}>
              Last {one} days
            </option>
          ))}
        </select>
        <Agents chosen={agent} choose={setAgent} />
        {admin && (
          <select
            aria-label="User"
            value={everyone ? "all" : "mine"}
            onChange={(event) => setEveryone(event.target.value === "all")}
          >
            <option value="mine">Mine</option>
            <option value="all">All users</option>
          </select>
        )}
        <div className={panel.segments} role="group" aria-label="Measure">
          {MEASURES.map(([id, title]) => (
            <button key={id} aria-pressed={id === measure} onClick={() => setMeasure(id)}>
              {title}
            </button>
          ))}
        </div>
      </div>
      <Show of={report} what="usage">
        {(found) => <Found report={found} all={listDays(since, until)} measure={measure} everyone={everyone} />}
      </Show>
    </div>
  );
}

function Agents({ chosen, choose }: { chosen: string; choose: (agent: string) => void }) {
  const agents = useApp((state) => state.agents);
  return (
    <select aria-label="Agent" value={chosen} onChange={(event) => choose(event.target.value)}>
      <option value="">All agents</option>
      {agents.map((one) => (
        <option key={one.agent_id} value={one.agent_id}>
          {one.name}
        </option>
      ))}
    </select>
  );
}

function Found({
  report,
  all,
  measure,
  everyone,
}: {
  report: api.UsageReport;
  all: string[];
  measure: Measure;
  everyone: boolean;
}) {
  const [split, setSplit] = useState<Split>("model");
  if (!report.rows.length) return <p className="empty">No usage in this period. Choose a longer one.</p>;
  const show = SHOW[measure];
  const data = stackByDay(report.rows, all, split, measure);
  const splits: Split[] = everyone ? ["model", "agent", "user"] : ["model", "agent"];
  return (
    <>
      <Totals total={report.total} />
      <section aria-label="Over time">
        <h3>Over time</h3>
        <div className={panel.segments} role="group" aria-label="Split">
          {splits.map((one) => (
            <button key={one} aria-pressed={one === split} onClick={() => setSplit(one)}>
              by {one}
            </button>
          ))}
        </div>
        {data.names.length ? (
          <Days data={data} show={show} label={`${measure} by day and ${split}, from ${all[0]} to ${all.at(-1)}`} />
        ) : (
          <p className="empty">The prices of these models are unknown. See tokens instead.</p>
        )}
      </section>
      {splits.map((one) => (
        <Shares key={one} title={`By ${one}`} rows={sumBy(report.rows, one, measure)} show={show} />
      ))}
      <Table report={report} users={everyone} />
    </>
  );
}

function Totals({ total }: { total: api.UsageReport["total"] }) {
  const known = total.unpriced < total.questions;
  return (
    <dl className={styles.totals} aria-label="Totals">
      <div>
        <dt>Runs</dt>
        <dd>{formatCount(total.runs)}</dd>
      </div>
      <div>
        <dt>Tokens in</dt>
        <dd title={formatCount(total.input_tokens)}>{formatShort(total.input_tokens)}</dd>
      </div>
      <div>
        <dt>Tokens out</dt>
        <dd title={formatCount(total.output_tokens)}>{formatShort(total.output_tokens)}</dd>
      </div>
      <div>
        <dt>Cost</dt>
        <dd
          title={total.unpriced ? `without ${formatPlural(total.unpriced, "model call")} of unknown price` : undefined}
        >
          {known ? formatDollars(total.cost) : "unknown"}
        </dd>
      </div>
    </dl>
  );
}
