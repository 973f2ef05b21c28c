/** The start page: the agent, its model and example prompts. */

import { useEffect } from "react";

import * as api from "../api";
import { serverUrl } from "../api/http";
import { joinClasses } from "../parts/classes";
import { useLoad } from "../panels/useLoad";
import { NEW, patchApp, setDraft, useApp } from "../state/app";
import { shortcut } from "../state/commands";
import { modelOf, useModels } from "../state/models";
import { examplePrompts } from "./examples";
import chat from "./chat.module.css";
import styles from "./welcome.module.css";

export function Welcome() {
  const agent = useApp((state) => state.agent);
  const known = useApp((state) => state.agents.find((one) => one.agent_id === state.agent));
  const detail = useLoad(() => (agent ? api.agents.get(agent) : Promise.resolve(undefined)), [agent], known);
  useFocus();
  return (
    <div className={joinClasses(chat.welcome, styles.welcome, "middle-of")}>
      <img src={serverUrl("/wick.svg")} alt="" width="52" height="52" />
      <h1>{known ? known.name : "wick"}</h1>
      <div className={styles.about}>{detail.data && <Model agent={detail.data} />}</div>
      <ul className={styles.examples} aria-label="Examples">
        {detail.data &&
          examplePrompts(detail.data).map((prompt) => (
            <li key={prompt}>
              <button onClick={() => insertPrompt(prompt)}>{prompt}</button>
            </li>
          ))}
      </ul>
      <p className={joinClasses(chat.keys, "only-large")}>
        <kbd>{shortcut("mod+k")}</kbd> all commands <kbd>/</kbd> skills <kbd>?</kbd> shortcuts
      </p>
    </div>
  );
}

function Model({ agent }: { agent: api.AgentDetail }) {
  const admin = useApp((state) => state.me?.role === "admin");
  const chosen = useModels(() => modelOf(NEW));
  if (chosen || !agent.is_demo)
    return (
      <p>
        <span className={styles.model}>{chosen || agent.answering_model}</span> answers. Each tool use and the decisions
        of hooks are shown here.
      </p>
    );
  return (
    <p className={styles.demo}>
      A demo model answers, without a network.{" "}
      {admin ? (
        <button className="link" onClick={() => patchApp({ panel: "settings" })}>
          Add a key
        </button>
      ) : (
        "Ask an admin to add a key of a provider"
      )}{" "}
      for answers of a real one.
    </p>
  );
}

/** Insert a prompt into the composer, where the user can edit it before sending. */
function insertPrompt(prompt: string): void {
  setDraft(NEW, prompt);
  document.getElementById("message")?.focus();
}

/** A new thread starts with the focus in the message box, unless the user is elsewhere. */
function useFocus(): void {
  useEffect(() => {
    const free = !document.activeElement || document.activeElement === document.body;
    if (free && !document.querySelector("dialog[open]") && matchMedia("(hover: hover)").matches)
      document.getElementById("message")?.focus({ preventScroll: true });
  }, []);
}
