/** The capabilities of an agent, outermost first, each on or off. */

import * as api from "../../api";
import { Switch } from "../../parts/Switch";
import { tryRequest } from "../../state/app";
import { Show } from "../States";
import { type Loaded, useLoad } from "../useLoad";
import panel from "../panels.module.css";
import styles from "./agent.module.css";

export function Hooks({ agent, changes }: { agent: string; changes: number }) {
  const hooks = useLoad(async () => (await api.agents.hooks(agent)).hooks, [agent], changes);
  return (
    <div className={panel.panel}>
      <p className={panel.note}>Hooks are listed outermost first. Changes affect only you, from the next run.</p>
      <Show of={hooks} what="its hooks">
        {(found) => (
          <>
            {found.some((hook) => hook.refused) && (
              <p className={panel.note}>Dimmed hooks protect the agent; only operators can change them.</p>
            )}
            <ul className={panel.rows}>
              {found.map((hook) => (
                <OneHook key={hook.name} agent={agent} hook={hook} hooks={hooks} />
              ))}
            </ul>
          </>
        )}
      </Show>
    </div>
  );
}

function OneHook({ agent, hook, hooks }: { agent: string; hook: api.HookInfo; hooks: Loaded<api.HookInfo[]> }) {
  const say = (value: boolean | null) =>
    tryRequest(() => api.agents.changeHooks(agent, { hooks: { [hook.name]: value } })).then(
      (now) => now && hooks.put(now.hooks),
    );
  return (
    <li className={styles.hook}>
      <div className={panel.line}>
        <Switch label={`Hook ${hook.name}`} on={hook.on} change={(on) => void say(on)} refused={hook.refused} />
        <span>
          <b>{hook.name}</b> <small>{[...new Set(hook.points)].join(", ")}</small>
        </span>
        {hook.changed && (
          <button className="plain" onClick={() => void say(null)} aria-label={`Reset ${hook.name}`}>
            reset
          </button>
        )}
      </div>
      {hook.on && <More hook={hook} />}
    </li>
  );
}

function More({ hook }: { hook: api.HookInfo }) {
  const options = typeof hook.options === "object" && hook.options !== null && Object.keys(hook.options).length > 0;
  if (!options && !hook.tools.length) return null;
  return (
    <details>
      <summary>
        {[options && "options", hook.tools.length && `tools: ${hook.tools.join(", ")}`].filter(Boolean).join("; ")}
      </summary>
      {options && (
        <pre tabIndex={0} aria-label={`Options of ${hook.name}`}>
          {JSON.stringify(hook.options, null, 2)}
        </pre>
      )}
    </details>
  );
}
