import { patchApp, useApp } from "../state/app";
import { continueWithAgent, newThread, otherAgent } from "../state/threads";
import styles from "./chat.module.css";

/** A notice that the selected agent is not that of the open thread, with the possible actions. */
export function OtherAgent() {
  const other = useApp(otherAgent);
  const agents = useApp((state) => state.agents);
  const agent = useApp((state) => state.agent);
  if (!other) return null;
  const nameOf = (id: string) => agents.find((one) => one.agent_id === id)?.name ?? id;
  const [before, chosen] = [nameOf(other), nameOf(agent)];
  return (
    <div className={styles.otherAgent} role="status">
      <span>
        This thread is with {before}. Your next message continues in a fork with {chosen}.
      </span>
      <button onClick={() => void continueWithAgent()}>Fork it now</button>
      <button onClick={newThread}>New thread with {chosen}</button>
      <button className="plain" onClick={() => patchApp({ agent: other })}>
        Back to {before}
      </button>
    </div>
  );
}
