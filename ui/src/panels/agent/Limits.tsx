/** Limits of a run, usage of the last one, and remaining budgets. */

import * as api from "../../api";
import { formatCount, formatDollars, formatSeconds } from "../../parts/amounts";
import { Gauge } from "../../parts/Gauge";
import { openConversation, useApp } from "../../state/app";
import { Show } from "../States";
import { useLoad } from "../useLoad";
import { latestRun } from "../trace/runs";
import { NOTHING, type Taken, measureRun } from "./runUsage";
import panel from "../panels.module.css";

type RunLimits = NonNullable<api.Limits["limits"]>;
interface Row {
  key: keyof Taken;
  label: string;
  show: (amount: number) => string;
}

const ROWS: Row[] = [
  { key: "steps", label: "Steps", show: formatCount },
  { key: "tokens", label: "Tokens", show: formatCount },
  { key: "seconds", label: "Time", show: formatSeconds },
  { key: "cost", label: "Cost", show: formatDollars },
  { key: "tool_calls", label: "Tool calls", show: formatCount },
];

export function Limits({ agent, changes }: { agent: string; changes: number }) {
  const running = useApp((state) => openConversation(state).run);
  const thread = useApp((state) => state.thread);
  const limits = useLoad(() => api.agents.limits(agent), [agent], `${changes} ${running}`);
  const last = useLoad(() => lastRun(thread), [thread], running);
  return (
    <section aria-label="Limits and budgets">
      <h3>Limits and budgets</h3>
      <Show of={limits} what="its limits">
        {(found) => (
          <>
            <OfRun limits={found.limits ?? null} run={last.data} />
            <Budgets budgets={found.budgets} />
          </>
        )}
      </Show>
    </section>
  );
}

async function lastRun(thread: string): Promise<Taken> {
  const run = thread ? latestRun((await api.threads.runs(thread)).runs) : undefined;
  if (!run) return NOTHING;
  const [info, trace] = await Promise.all([
    api.runs.get(run.run_id),
    run.traced ? api.runs.trace(run.run_id).catch(() => null) : null,
  ]);
  return measureRun(info, trace);
}

function OfRun({ limits, run }: { limits: RunLimits | null; run: Taken | undefined }) {
  const rows = ROWS.filter(({ key }) => limits?.[key] != null);
  if (!limits || !rows.length)
    return <p className={panel.note}>No run limits. Enable the hook “limits” to set them.</p>;
  return (
    <>
      <h4>Per run</h4>
      {rows.map(({ key, label, show }) => (
        <Gauge key={key} label={label} used={run?.[key] ?? 0} most={limits[key]!} show={show} />
      ))}
      <p className={panel.note}>
        {run && run !== NOTHING
          ? "Usage of the last run of this thread."
          : "The usage of the last run is shown after a run of this thread."}
      </p>
    </>
  );
}

function Budgets({ budgets }: { budgets: api.Budget[] }) {
  if (!budgets.length) return <p className={panel.note}>No budget.</p>;
  return (
    <>
      <h4>All runs of all users</h4>
      {budgets.map((one) => (
        <div key={one.name}>
          {one.tokens != null && (
            <Gauge
              label={budgetName(one, "tokens")}
              used={one.spent_tokens}
              reserved={one.reserved_tokens}
              most={one.tokens}
              show={formatCount}
            />
          )}
          {one.dollars != null && (
            <Gauge
              label={budgetName(one, "dollars")}
              used={one.spent_dollars}
              reserved={one.reserved_dollars}
              most={one.dollars}
              show={formatDollars}
            />
          )}
        </div>
      ))}
    </>
  );
}

const budgetName = (budget: api.Budget, what: string): string =>
  budget.name === "budget" ? `Budget in ${what}` : `${budget.name}, in ${what}`;
