/** Replay: decisions of other guards, or of one more rule, about past calls. No call is executed. */

import { useEffect, useRef, useState } from "react";

import * as api from "../api";
import { tryRequest, notify, useApp } from "../state/app";
import { openThread } from "../state/threads";
import { withRule, currentRules, type Kind, KINDS } from "./agent/rules";
import { Form } from "./replay/Form";
import { Report } from "./replay/Report";
import { type ReplayForm, hasRules, splitLines, NOTHING, replayRequest } from "./replay/request";
import panel from "./panels.module.css";

export default function Replay() {
  const agent = useApp((state) => state.agent);
  const thread = useApp((state) => state.thread);
  const [form, change] = useState<ReplayForm>(NOTHING);
  const [report, setReport] = useState<api.ReplayReport | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => change((old) => (old.thread ? { ...old, thread } : old)), [thread]);
  const about = useRef(agent);
  useEffect(() => {
    about.current = agent;
    setReport(null);
  }, [agent]);
  const run = async () => {
    setBusy(true);
    const found = await tryRequest(() => api.replay(replayRequest(agent, form)));
    if (about.current === agent) setReport(found ?? null); // ignore the report if another agent is selected meanwhile
    setBusy(false);
  };
  return (
    <div className={panel.panel}>
      <p className={panel.note}>
        Evaluate recorded tool uses again, with other guards and rules. No tool is run, no question is asked, and
        nothing is changed.
      </p>
      <Form form={form} change={change} busy={busy} run={() => void run()} />
      {report && <Report report={report} open={(id) => void openThread(id)} />}
      {report && hasRules(form) && (
        <button onClick={() => void tryRequest(() => addRules(agent, form))}>Apply these rules to the agent</button>
      )}
    </div>
  );
}

/** Add the rules that were tried to those the agent has. */
async function addRules(agent: string, form: ReplayForm): Promise<void> {
  const before = currentRules(await api.agents.permissions(agent));
  const pairs = KINDS.flatMap((kind) => splitLines(form[kind]).map((rule): [Kind, string] => [kind, rule]));
  const rules = pairs.reduce((all, [kind, rule]) => withRule(all, kind, rule), before);
  await api.agents.changeHooks(agent, { hooks: { permissions: rules } });
  notify("The rules apply from the next run.");
}
