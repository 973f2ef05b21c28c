/** Links with which anyone reads a thread: create, copy and revoke them. */

import { useState } from "react";

import * as api from "../api";
import { serverUrl } from "../api/http";
import { useLoad } from "../panels/useLoad";
import { tryRequest } from "../state/app";
import { copyText } from "../state/talk";
import { Dialog } from "./Dialog";
import styles from "./share.module.css";

export default function Share({ one, done }: { one: api.Thread; done: () => void }) {
  const links = useLoad(async () => (await api.shares.list(one.id)).shares, [one.id]);
  const [made, setMade] = useState("");
  const create = () =>
    void tryRequest(async () => {
      const link = await api.shares.create(one.id);
      setMade(new URL(serverUrl(link.path), location.href).href);
      links.reload();
    });
  const revoke = (id: string) =>
    void tryRequest(async () => {
      await api.shares.revoke(one.id, id);
      setMade("");
      links.reload();
    });
  return (
    <Dialog title="Share thread" close={done}>
      <h2>Share “{one.title || "Untitled"}”</h2>
      <p>
        Everyone with the link can read the messages up to now, with tool calls and results, without signing in. Later
        messages, files of the workspace and your name are not shown.
      </p>
      {made && (
        <div className={styles.made}>
          <input aria-label="Link" readOnly value={made} onFocus={(event) => event.target.select()} />
          <button onClick={() => void copyText(made)}>Copy link</button>
          <small>It is shown once. Copy it now.</small>
        </div>
      )}
      {Boolean(links.data?.length) && (
        <ul className={styles.links} aria-label="Links">
          {links.data!.map((link) => (
            <li key={link.id}>
              <span>Created {new Date(link.created * 1000).toLocaleString()}</span>
              <button className="no" onClick={() => revoke(link.id)}>
                Revoke
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="choices">
        <button className="main" data-first onClick={create}>
          Create a link
        </button>
        <button onClick={done}>Close</button>
      </div>
    </Dialog>
  );
}
