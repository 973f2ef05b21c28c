/** The agents of the user: make one, change or copy one, or show it as YAML. */

import { useState } from "react";

import type { AgentSummary } from "../api";
import { agentSettings, type AgentForm, type AgentOptions } from "../api/settings";
import panel from "../panels/panels.module.css";
import { Show } from "../panels/States";
import { useLoad } from "../panels/useLoad";
import { tryRequest, useApp } from "../state/app";
import { AgentEditor, type Edited } from "./AgentEditor";
import { asFields, type Schema, withoutHidden } from "./form";
import styles from "./settings.module.css";
import { YamlText } from "./YamlText";

export function AgentList() {
  const form = useLoad(() => agentSettings.form(), []);
  const [edited, edit] = useState<Edited | null>(null);
  const [shown, show] = useState<AgentOptions | null>(null);
  if (edited)
    return (
      <Show of={form} what="the form">
        {(found) => <AgentEditor key={edited.key} form={found} edited={edited} edit={edit} />}
      </Show>
    );
  return (
    <div className={panel.panel}>
      <button className="main" onClick={() => edit({ key: "new", id: "", revision: 0, shared: false, options: {} })}>
        New agent
      </button>
      {shown && <YamlText agent={shown} close={() => show(null)} />}
      <Rows form={form.data} edit={edit} show={show} />
    </div>
  );
}

interface RowsProps {
  form: AgentForm | undefined;
  edit: (edited: Edited) => void;
  show: (options: AgentOptions) => void;
}

function Rows({ form, edit, show }: RowsProps) {
  const agents = useApp((state) => state.agents);
  const role = useApp((state) => state.me?.role ?? "user");
  const sees = (one: AgentSummary) => role !== "user" || !one.shared;
  const open = (id: string, use: (found: AgentOptions) => void) =>
    void tryRequest(() => agentSettings.config(id)).then((found) => found && use(found));
  const change = (found: AgentOptions) =>
    edit({
      key: `${found.agent_id} ${found.revision}`,
      id: found.agent_id,
      revision: found.revision,
      shared: found.shared,
      options: found.options,
      refused: found.refused,
      enforced: found.enforced,
    });
  const copy = (found: AgentOptions) => {
    const known = (form?.form as Schema | undefined)?.properties ?? {};
    const kept = Object.entries(asFields(withoutHidden(found.options))).filter(([key]) => key in known);
    edit({
      key: `copy ${found.agent_id}`,
      id: "",
      revision: 0,
      shared: false,
      options: Object.fromEntries(kept),
      enforced: found.enforced,
    });
  };
  return (
    <ul className={panel.rows} aria-label="Agents">
      {agents.map((one) => (
        <li key={one.agent_id} className={styles.row}>
          <span>
            <strong>{one.name}</strong>{" "}
            <small className={styles.hint}>
              {one.name !== one.agent_id && `${one.agent_id}, `}
              {one.model}
            </small>{" "}
            <span className={panel.chip}>
              {one.origin === "file"
                ? "agents.yaml"
                : one.origin === "code"
                  ? "program"
                  : one.shared
                    ? "shared"
                    : "yours"}
            </span>
          </span>
          {sees(one) && (
            <span className="choices">
              {one.origin === "created" && (
                <button aria-label={`Edit ${one.name}`} onClick={() => open(one.agent_id, change)}>
                  Edit
                </button>
              )}
              <button aria-label={`Copy ${one.name}`} onClick={() => open(one.agent_id, copy)}>
                Copy
              </button>
              <button aria-label={`Show ${one.name} as YAML`} onClick={() => open(one.agent_id, show)}>
                YAML
              </button>
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
