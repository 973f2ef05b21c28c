import { useState } from "react";

import { serverUrl } from "../api/http";
import { signIn, signInByLink } from "../state/session";
import styles from "./shell.module.css";

export function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: React.FormEvent) => {
    event.preventDefault();
    setBusy(true);
    await (token.includes("#ticket=") ? signInByLink(token.slice(token.indexOf("#"))) : signIn(token.trim()));
    setBusy(false);
  };
  return (
    <main className={styles.signIn}>
      <img src={serverUrl("/wick.svg")} alt="" width="64" height="64" />
      <h1>wick</h1>
      <form onSubmit={(event) => void submit(event)}>
        <label htmlFor="token">Access token or sign-in link</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <button className="main" disabled={busy || !token.trim()}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
      <p>
        The server prints a one-time sign-in link when it starts. The admin token is in the file <code>token</code> of
        its data folder. For a token of your own, ask your administrator.
      </p>
    </main>
  );
}
