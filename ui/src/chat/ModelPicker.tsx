/** The model that answers: the agent's own, or another one that the server allows. */

import { useEffect } from "react";

import { openConversation, useApp } from "../state/app";
import { chooseModel, modelOf, refreshModels, useModels } from "../state/models";
import styles from "./welcome.module.css";

export function ModelPicker() {
  const thread = useApp((state) => state.thread);
  const agent = useApp((state) => state.agents.find((one) => one.agent_id === state.agent));
  const running = useApp((state) => Boolean(openConversation(state).run));
  const known = useModels((state) => state.known);
  const chosen = useModels(() => modelOf(thread));
  useEffect(() => void refreshModels(), [agent]);
  if (!known.length || !agent) return null;
  return (
    <select
      className={styles.picker}
      aria-label="Model"
      title={running ? "The next run uses it" : "The model that answers"}
      value={chosen}
      onChange={(event) => chooseModel(thread, event.target.value)}
    >
      <option value="">{agent.model || "the agent's model"}</option>
      {known
        .filter((one) => one.name !== agent.model)
        .map((one) => (
          <option key={one.name} value={one.name}>
            {one.name}
          </option>
        ))}
    </select>
  );
}
