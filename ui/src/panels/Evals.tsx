/** Eval reports: the variants of an agent side by side, and the details of each case. */

import { useState } from "react";

import * as api from "../api";
import { formatPlural } from "../parts/amounts";
import { formatAgo } from "../shell/ago";
import { useApp } from "../state/app";
import { openThread } from "../state/threads";
import { CaseDetails } from "./evals/CaseDetails";
import { Comparison } from "./evals/Comparison";
import { type Filter, FILTERS, filterCases } from "./evals/cases";
import { Regressions } from "./evals/Regressions";
import { Variants } from "./evals/Variants";
import { Show } from "./States";
import { useEvery, useLoad } from "./useLoad";
import { joinClasses } from "../parts/classes";
import panel from "./panels.module.css";
import styles from "./evals/evals.module.css";

const LOOK_MS = 10_000; // between two polls for new reports

export default function Evals() {
  const allowed = useApp((state) => state.me?.role === "operator" || state.me?.role === "admin");
  return (
    <div className={joinClasses(panel.panel, styles.evals)}>
      {allowed ? (
        <Reports />
      ) : (
        <p className="empty">Eval reports may quote threads of any user. Only operators can see them.</p>
      )}
    </div>
  );
}

function Reports() {
  const list = useLoad(() => api.evals.list(), [], useEvery(LOOK_MS));
  const [chosen, choose] = useState("");
  return (
    <Show of={list} what="reports">
      {({ reports }) => {
        const shown = reports.find((one) => one.name === chosen) ?? reports[0];
        if (!shown) return <p className="empty">No reports. Store one with: wick eval run suite.yaml --save NAME</p>;
        return (
          <>
            <label className={panel.field}>
              Report
              <select value={shown.name} onChange={(event) => choose(event.target.value)}>
                {reports.map((one) => (
                  <option key={one.name} value={one.name}>
                    {describe(one)}
                  </option>
                ))}
              </select>
            </label>
            <Report key={shown.name} info={shown} />
          </>
        );
      }}
    </Show>
  );
}

const describe = (one: api.EvalReportInfo): string =>
  `${one.name}, ${formatAgo(one.updated)}${one.partial ? ", partial" : ""}`;

function Report({ info }: { info: api.EvalReportInfo }) {
  const report = useLoad(() => api.evals.get(info.name), [info.name], info.updated);
  return (
    <Show of={report} what="the report">
      {(found) => <Found report={found} />}
    </Show>
  );
}

function Found({ report }: { report: api.EvalReport }) {
  const [filter, setFilter] = useState<Filter>("all");
  const [open, setOpen] = useState("");
  const cases = filterCases(report, filter);
  const details = cases.find((one) => one.id === open);
  return (
    <>
      {report.partial && (
        <p className={panel.trouble} role="note">
          This report is partial: the run was interrupted before all cases had finished.
        </p>
      )}
      <Variants report={report} />
      <Regressions report={report} open={setOpen} />
      <section aria-label="Cases">
        <h3>{formatPlural(report.cases.length, "case")}</h3>
        <div className={panel.segments} role="group" aria-label="Cases to show">
          {FILTERS.map(([id, title]) => (
            <button key={id} aria-pressed={id === filter} onClick={() => setFilter(id)}>
              {title}
            </button>
          ))}
        </div>
        {cases.length ? (
          <Comparison report={report} cases={cases} open={open} choose={(id) => setOpen(id === open ? "" : id)} />
        ) : (
          <p className="empty">No such cases. Show all of them instead.</p>
        )}
      </section>
      {details && (
        <CaseDetails
          key={details.id}
          found={details}
          variants={report.variants.map((one) => one.name)}
          openThread={(id) => void openThread(id)}
        />
      )}
    </>
  );
}
