/** An agent as the text of an agents.yaml. */

import type { AgentOptions } from "../api/settings";
import { copyText } from "../state/talk";
import styles from "./settings.module.css";

export function YamlText({ agent, close }: { agent: AgentOptions; close: () => void }) {
  return (
    <section aria-label={`${agent.agent_id} as YAML`}>
      <h3>{agent.agent_id} as agents.yaml</h3>
      <p className={styles.hint}>
        A file with this text has the same agent. Secrets are variables of the environment, such as {"${NAME}"}.
      </p>
      <pre tabIndex={0}>{agent.yaml}</pre>
      <div className="choices">
        <button onClick={() => void copyText(agent.yaml)}>Copy the text</button>
        <button onClick={close}>Close</button>
      </div>
    </section>
  );
}
