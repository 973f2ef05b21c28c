/** Permissions of the agent: its mode, rules, and permanent grants. */

import { type FormEvent, useState } from "react";

import * as api from "../../api";
import { AboutCall } from "../../chat/AboutCall";
import { formatPlural } from "../../parts/amounts";
import { tryRequest, useApp } from "../../state/app";
import { Show } from "../States";
import { type Loaded, useLoad } from "../useLoad";
import { withRule, currentRules, type Kind, KINDS, MODES, withoutRule, type RuleSet } from "./rules";
import { joinClasses } from "../../parts/classes";
import panel from "../panels.module.css";
import styles from "./agent.module.css";

type Mode = NonNullable<api.Permissions["mode"]>;

export function Permissions({ agent, changes }: { agent: api.AgentDetail; changes: number }) {
  const permissions = useLoad(() => api.agents.permissions(agent.agent_id), [agent.agent_id], changes);
  return (
    <div className={panel.panel}>
      <Show of={permissions} what="its permissions">
        {(found) => <Found agent={agent} found={found} permissions={permissions} />}
      </Show>
    </div>
  );
}

/** A change in progress, and how to make one; one at a time, as each starts from the current rules. */
function useChanges(agent: string, permissions: Loaded<api.Permissions>) {
  const [busy, setBusy] = useState(false);
  const change = async (work: () => Promise<unknown>): Promise<boolean> => {
    setBusy(true);
    const now = await tryRequest(async () => {
      await work();
      return api.agents.permissions(agent);
    });
    if (now) permissions.put(now);
    setBusy(false);
    return now !== undefined;
  };
  return {
    busy,
    say: (value: RuleSet | true) => change(() => api.agents.changeHooks(agent, { hooks: { permissions: value } })),
    revoke: (grant: string) => change(() => api.agents.revoke(agent, grant)),
  };
}

function Found({
  agent,
  found,
  permissions,
}: {
  agent: api.AgentDetail;
  found: api.Permissions;
  permissions: Loaded<api.Permissions>;
}) {
  const { busy, say, revoke } = useChanges(agent.agent_id, permissions);
  const operator = useApp((state) => state.me?.role !== "user");
  const may = operator || !agent.shared;
  return (
    <>
      <section aria-label="Mode">
        <h3>Mode</h3>
        {!may && (
          <p className={panel.note}>
            Only operators can change the mode and rules of this agent. You can revoke your own grants.
          </p>
        )}
        {found.mode ? (
          <ModeChoice
            mode={found.mode}
            off={busy || !may}
            choose={(mode) => void say({ ...currentRules(found), mode })}
          />
        ) : (
          <p className={panel.note}>
            Permissions are off; only the guards of other hooks apply.{" "}
            {may && (
              <button disabled={busy} onClick={() => void say(true)}>
                Enable permissions
              </button>
            )}
          </p>
        )}
      </section>
      {found.mode && <Rules found={found} say={may ? say : null} busy={busy} />}
      <Grants grants={found.grants} busy={busy} revoke={(grant) => void revoke(grant)} />
    </>
  );
}

function ModeChoice({ mode, off, choose }: { mode: Mode; off: boolean; choose: (mode: Mode) => void }) {
  return (
    <>
      <select aria-label="Mode" value={mode} disabled={off} onChange={(event) => choose(event.target.value as Mode)}>
        {MODES.map(({ id, title }) => (
          <option key={id} value={id}>
            {title}
          </option>
        ))}
      </select>
      <p className={panel.note}>{MODES.find((one) => one.id === mode)?.says}</p>
    </>
  );
}

type Say = (rules: RuleSet) => Promise<boolean>;

/** `say` is null for read-only users. */
function Rules({ found, say, busy }: { found: api.Permissions; say: Say | null; busy: boolean }) {
  const own = found.rules.filter((rule) => !rule.policy);
  const ready = found.rules.filter((rule) => rule.policy);
  return (
    <section aria-label="Rules">
      <h3>Rules</h3>
      <p className={panel.note}>Deny overrides ask, ask overrides allow, in any order.</p>
      {!own.length && <p className="empty">No rules.</p>}
      <ul className={panel.rows}>
        {own.map((rule) => (
          <li key={`${rule.type} ${rule.rule}`} className={joinClasses(panel.line, styles.ruleRow)}>
            <b data-type={rule.type}>{rule.type}</b>
            <span>
              <code>{rule.rule}</code>
              {rule.message && (
                <>
                  <br />
                  <small>{rule.message}</small>
                </>
              )}
            </span>
            {say && (
              <button
                className="plain"
                disabled={busy}
                aria-label={`Remove ${rule.type} ${rule.rule}`}
                onClick={() => void say(withoutRule(currentRules(found), rule.type, rule.rule))}
              >
                Remove
              </button>
            )}
          </li>
        ))}
      </ul>
      {say && <NewRule busy={busy} add={(type, rule) => say(withRule(currentRules(found), type, rule))} />}
      {ready.length > 0 && (
        <details>
          <summary>
            {formatPlural(ready.length, "rule")} of the ready set “{ready[0]!.policy}”
          </summary>
          <pre tabIndex={0}>{ready.map((rule) => `${rule.type}  ${rule.rule}`).join("\n")}</pre>
        </details>
      )}
    </section>
  );
}

function NewRule({ busy, add }: { busy: boolean; add: (type: Kind, rule: string) => Promise<boolean> }) {
  const [type, setType] = useState<Kind>("deny");
  const [rule, setRule] = useState("");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (await add(type, rule.trim())) setRule(""); // a refused rule stays in the form
  };
  return (
    <form className={styles.newRule} onSubmit={(event) => void submit(event)}>
      <select aria-label="Rule type" value={type} onChange={(event) => setType(event.target.value as Kind)}>
        {KINDS.map((kind) => (
          <option key={kind}>{kind}</option>
        ))}
      </select>
      <input
        aria-label="Rule"
        value={rule}
        placeholder="Bash(git push *)"
        onChange={(event) => setRule(event.target.value)}
      />
      <button disabled={busy || !rule.trim()}>Add</button>
    </form>
  );
}

function Grants({
  grants,
  busy,
  revoke,
}: {
  grants: api.Permissions["grants"];
  busy: boolean;
  revoke: (id: string) => void;
}) {
  return (
    <section aria-label="Grants">
      <h3>Your grants</h3>
      {!grants.length && <p className="empty">No grants. “Always allow” adds one.</p>}
      <ul className={panel.rows}>
        {grants.map((grant) => (
          <li key={grant.id}>
            <div className={panel.line}>
              <b>{grant.tool}</b>
              <span />
              <button
                className="plain"
                disabled={busy}
                aria-label={`Revoke ${grant.tool}`}
                onClick={() => revoke(grant.id)}
              >
                Revoke
              </button>
            </div>
            <AboutCall tool={grant.tool} args={grant.args} />
          </li>
        ))}
      </ul>
    </section>
  );
}
