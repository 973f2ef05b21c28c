/** An agent in short: model, backend, limits. */

import type { AgentDetail } from "../../api";
import { Backend } from "./Backend";
import { Limits } from "./Limits";
import panel from "../panels.module.css";
import styles from "./agent.module.css";

const ORIGINS = { file: "agents.yaml", code: "application code", created: "API" };

export function Overview({ agent, changes }: { agent: AgentDetail; changes: number }) {
  return (
    <div className={panel.panel}>
      <section aria-label="About">
        <h3>{agent.name}</h3>
        <dl className={panel.facts}>
          <dt>Id</dt>
          <dd>
            <code>{agent.agent_id}</code>
          </dd>
          <dt>Model</dt>
          <dd>
            <code>{agent.model || "set in code"}</code>
          </dd>
          <dt>Defined in</dt>
          <dd>
            {ORIGINS[agent.origin]}
            {agent.shared ? ", shared" : ", private"}
          </dd>
          {agent.context_window && (
            <>
              <dt>Context</dt>
              <dd>{agent.context_window.toLocaleString("en")} tokens</dd>
            </>
          )}
        </dl>
        {agent.system_prompt && (
          <details className={styles.prompt}>
            <summary>System prompt</summary>
            <pre tabIndex={0}>{agent.system_prompt}</pre>
          </details>
        )}
      </section>
      <Backend agent={agent.agent_id} backend={agent.backend ?? null} />
      <Limits agent={agent.agent_id} changes={changes} />
    </div>
  );
}
