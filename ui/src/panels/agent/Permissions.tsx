/** What the agent may do by itself: its mode, its rules, and what its user has granted for good. */

import { type FormEvent, useState } from "react";

import * as api from "../../api";
import { attempt } from "../../state/app";
import { Show } from "../States";
import { type Loaded, useLoad } from "../useLoad";
import { added, kept, type Kind, KINDS, MODES, removed, type RuleSet } from "./rules";

type Mode = NonNullable<api.Permissions["mode"]>;

export function Permissions({ agent, changes }: { agent: string; changes: number }) {
  const permissions = useLoad(() => api.agents.permissions(agent), [agent], changes);
  return <div className="panel"><Show of={permissions} what="its permissions">{(found) => <Found agent={agent} found={found} permissions={permissions} />}</Show></div>;
}

function Found({ agent, found, permissions }: { agent: string; found: api.Permissions; permissions: Loaded<api.Permissions> }) {
  const say = (value: RuleSet | true) =>
    attempt(async () => {
      await api.agents.changeHooks(agent, { hooks: { permissions: value } });
      permissions.put(await api.agents.permissions(agent));
    });
  const revoke = (grant: string) =>
    attempt(async () => {
      await api.agents.revoke(agent, grant);
      permissions.put(await api.agents.permissions(agent));
    });
  return (
    <>
      <section aria-label="Mode">
        <h3>Mode</h3>
        {found.mode ? <ModeChoice mode={found.mode} choose={(mode) => void say({ ...kept(found), mode })} /> : <p className="note">It has no permissions: only the guards of its other hooks decide. <button onClick={() => void say(true)}>Give it permissions</button></p>}
      </section>
      {found.mode && <Rules found={found} say={(rules) => void say(rules)} />}
      <Grants grants={found.grants} revoke={(grant) => void revoke(grant)} />
    </>
  );
}

function ModeChoice({ mode, choose }: { mode: Mode; choose: (mode: Mode) => void }) {
  return (
    <>
      <select aria-label="Mode" value={mode} onChange={(event) => choose(event.target.value as Mode)}>
        {MODES.map(({ id, title }) => <option key={id} value={id}>{title}</option>)}
      </select>
      <p className="note">{MODES.find((one) => one.id === mode)?.says}</p>
    </>
  );
}

function Rules({ found, say }: { found: api.Permissions; say: (rules: RuleSet) => void }) {
  const own = found.rules.filter((rule) => !rule.policy);
  const ready = found.rules.filter((rule) => rule.policy);
  return (
    <section aria-label="Rules">
      <h3>Rules</h3>
      <p className="note">Deny beats ask, ask beats allow, whatever their order.</p>
      {!own.length && <p className="empty">There are none of its own.</p>}
      <ul className="rows">
        {own.map((rule) => (
          <li key={`${rule.type} ${rule.rule}`} className="line rule-row">
            <b className={rule.type}>{rule.type}</b>
            <span><code>{rule.rule}</code>{rule.message && <><br /><small>{rule.message}</small></>}</span>
            <button className="plain" aria-label={`Remove ${rule.type} ${rule.rule}`} onClick={() => say(removed(kept(found), rule.type, rule.rule))}>Remove</button>
          </li>
        ))}
      </ul>
      <NewRule add={(type, rule) => say(added(kept(found), type, rule))} />
      {ready.length > 0 && (
        <details>
          <summary>{ready.length} rules of the ready set “{ready[0]!.policy}”</summary>
          <pre tabIndex={0}>{ready.map((rule) => `${rule.type}  ${rule.rule}`).join("\n")}</pre>
        </details>
      )}
    </section>
  );
}

function NewRule({ add }: { add: (type: Kind, rule: string) => void }) {
  const [type, setType] = useState<Kind>("deny");
  const [rule, setRule] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    add(type, rule.trim());
    setRule("");
  };
  return (
    <form className="new-rule" onSubmit={submit}>
      <select aria-label="Kind of rule" value={type} onChange={(event) => setType(event.target.value as Kind)}>{KINDS.map((kind) => <option key={kind}>{kind}</option>)}</select>
      <input aria-label="Rule" value={rule} placeholder="Bash(git push *)" onChange={(event) => setRule(event.target.value)} />
      <button disabled={!rule.trim()}>Add</button>
    </form>
  );
}

function Grants({ grants, revoke }: { grants: api.Permissions["grants"]; revoke: (id: string) => void }) {
  return (
    <section aria-label="Granted">
      <h3>Granted by you</h3>
      {!grants.length && <p className="empty">Nothing. What you answer with “always” stands here.</p>}
      <ul className="rows">
        {grants.map((grant) => (
          <li key={grant.id}>
            <div className="line"><b>{grant.tool}</b><span /><button className="plain" aria-label={`Take back ${grant.tool}`} onClick={() => revoke(grant.id)}>Take back</button></div>
            <pre tabIndex={0} aria-label={`Arguments of ${grant.tool}`}>{JSON.stringify(grant.args, null, 2)}</pre>
          </li>
        ))}
      </ul>
    </section>
  );
}
