/** The onion of each operation, with the decisions of every ring in the shown run. */

import { useState } from "react";

import * as api from "../../api";
import { type Deeds, sumHookActions } from "../../parts/hookActions";
import { Onion, type Ring } from "../../parts/Onion";
import { useApp } from "../../state/app";
import { Show } from "../States";
import { useProgress, useRun } from "../trace/runs";
import { useLoad } from "../useLoad";
import panel from "../panels.module.css";
import styles from "./agent.module.css";

type Operation = api.Onion["operations"][number];
type Info = Operation["rings"][number];

const NAMES: Record<string, string> = { run: "Run", step: "Step", model_call: "Model call", tool_use: "Tool use" };

export function Rings({ agent, changes }: { agent: string; changes: number }) {
  const onion = useLoad(() => api.agents.onion(agent), [agent], changes);
  const thread = useApp((state) => state.thread);
  const { run } = useRun(thread);
  const trace = useLoad(
    () => (run?.traced ? api.runs.trace(run.run_id) : Promise.resolve(null)),
    [run?.run_id, run?.traced],
    useProgress(run?.run_id ?? ""),
  );
  const did: Deeds = trace.data ? sumHookActions(trace.data.spans) : () => undefined;
  return (
    <div className={panel.panel}>
      <Show of={onion} what="its onion">
        {(found) => <Operations operations={found.operations} did={did} />}
      </Show>
      <p className={panel.note}>
        {trace.data
          ? "Highlighted rings acted in the selected run. Select a ring for details."
          : "After a run, each ring shows its verdicts."}
      </p>
    </div>
  );
}

function Operations({ operations, did }: { operations: Operation[]; did: Deeds }) {
  const [chosen, choose] = useState("tool_use");
  const shown = operations.find((one) => one.operation === chosen) ?? operations[0];
  if (!shown) return null;
  const rings = [...shown.rings, ...shown.guards].map((ring) => toRing(ring, shown.operation, did));
  return (
    <>
      <div className={panel.segments} role="group" aria-label="Operation">
        {operations.map(({ operation }) => (
          <button key={operation} aria-pressed={operation === shown.operation} onClick={() => choose(operation)}>
            {NAMES[operation] ?? operation}
          </button>
        ))}
      </div>
      <Onion operation={shown.operation} rings={rings} />
      <Legend />
      <List rings={rings} />
    </>
  );
}

export function toRing(info: Info, operation: string, did: Deeds): Ring {
  const deed = did(operation, info.hook);
  const about: Ring = {
    name: info.hook,
    position: info.position as Ring["position"],
    source: info.source,
    fail: info.fail,
  };
  if (info.match?.length) about.match = info.match.join(", ");
  return deed ? { ...about, did: deed.text, acted: deed.acted } : about;
}

function Legend() {
  return (
    <ul className={styles.legend} aria-label="Colours">
      {(["after", "wrap", "before", "guard"] as const).map((position) => (
        <li key={position} data-position={position}>
          <i />
          {position}
        </li>
      ))}
    </ul>
  );
}

function List({ rings }: { rings: Ring[] }) {
  return (
    <details className={panel.wide}>
      <summary>As a list</summary>
      <table>
        <thead>
          <tr>
            <th>hook</th>
            <th>position</th>
            <th>source</th>
            <th>on failure</th>
            <th>in this run</th>
          </tr>
        </thead>
        <tbody>
          {rings.map((ring) => (
            <tr key={ring.name}>
              <td>
                <code>{ring.name}</code>
              </td>
              <td>
                {ring.position}
                {ring.match ? `, for ${ring.match}` : ""}
              </td>
              <td>{ring.source}</td>
              <td>{ring.fail}</td>
              <td>{ring.did}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
