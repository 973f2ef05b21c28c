/** Users and their tokens. A new token is shown once. */

import { type FormEvent, useState } from "react";

import { accounts, type NewToken, type User } from "../api/settings";
import panel from "../panels/panels.module.css";
import { Show } from "../panels/States";
import { useLoad } from "../panels/useLoad";
import { formatAgo } from "../shell/ago";
import { tryRequest } from "../state/app";
import { copyText } from "../state/talk";
import styles from "./settings.module.css";

type Role = User["tokens"][number]["role"];

export function Users() {
  const loaded = useLoad(() => accounts.users(), []);
  const [made, setMade] = useState<NewToken | null>(null);
  const issue = async (name: string, role: Role, note: string) => {
    const token = await tryRequest(() => accounts.issue({ name, role, note }));
    if (token) setMade(token);
    loaded.reload();
    return token !== undefined;
  };
  const revoke = async (user: string, id: string) => {
    if (!confirm(`Revoke this token of ${user}? Programs and browsers that use it are signed out.`)) return;
    await tryRequest(() => accounts.revoke(id));
    loaded.reload();
  };
  return (
    <div className={panel.panel}>
      <NewTokenForm issue={issue} />
      {made && <ShownOnce made={made} close={() => setMade(null)} />}
      <section aria-label="Users">
        <Show of={loaded} what="the users">
          {(found) => (
            <ul className={panel.rows}>
              {found.users.map((user) => (
                <li key={`${user.provider} ${user.name}`}>
                  <strong>{user.name}</strong> <span className={panel.chip}>{user.provider}</span>
                  {user.tokens.map((token, at) => (
                    <div key={token.id || at} className={styles.row}>
                      <span className={styles.hint}>
                        {token.role}
                        {token.note && `, ${token.note}`}
                        {token.created !== null && `, by ${token.by}, ${formatAgo(token.created ?? 0)}`}
                      </span>
                      {token.id && (
                        <button className="no" onClick={() => void revoke(user.name, token.id)}>
                          Revoke
                        </button>
                      )}
                    </div>
                  ))}
                </li>
              ))}
            </ul>
          )}
        </Show>
      </section>
    </div>
  );
}

function NewTokenForm({ issue }: { issue: (name: string, role: Role, note: string) => Promise<boolean> }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("user");
  const [note, setNote] = useState("");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (await issue(name.trim(), role, note.trim())) {
      setName("");
      setNote("");
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)} aria-label="New token">
      <h3>New token</h3>
      <div className={styles.field}>
        <label htmlFor="token-name">User name</label>
        <input id="token-name" autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
      </div>
      <div className={styles.field}>
        <label htmlFor="token-role">Role</label>
        <select id="token-role" value={role} onChange={(event) => setRole(event.target.value as Role)}>
          {["user", "operator", "admin"].map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </div>
      <div className={styles.field}>
        <label htmlFor="token-note">What it is for</label>
        <input id="token-note" value={note} onChange={(event) => setNote(event.target.value)} />
      </div>
      <button className="main" disabled={!name.trim()}>
        Create the token
      </button>
    </form>
  );
}

function ShownOnce({ made, close }: { made: NewToken; close: () => void }) {
  return (
    <div className={styles.note} role="status">
      <p>The token of {made.user.name}. Copy it now: it cannot be shown again.</p>
      <p className={styles.token}>{made.token}</p>
      <div className="choices">
        <button onClick={() => void copyText(made.token)}>Copy</button>
        <button onClick={close}>Done</button>
      </div>
    </div>
  );
}
