/** The files of the agent's workspace, as they are right now. */

import { useMemo, useRef, useState } from "react";

import { openFile } from "../canvas/open";
import { Icon } from "../shell/Icon";
import { useApp } from "../state/app";
import { createFile, uploadFiles } from "./files/actions";
import { readChosen, readDropped, type Upload } from "./files/droppedFiles";
import { useFolders } from "./files/live";
import { ROOT, rowsOf } from "./files/rows";
import { Tree } from "./files/Tree";
import { Trouble } from "./States";
import { joinClasses } from "../parts/classes";
import styles from "./files/files.module.css";

export default function Files() {
  const agent = useApp((state) => state.agent);
  return <Workspace key={agent} agent={agent} />;
}

function Workspace({ agent }: { agent: string }) {
  const thread = useApp((state) => state.thread);
  const live = useFolders(agent, thread);
  const rows = useMemo(() => rowsOf(live.folders, live.open), [live.folders, live.open]);
  const [over, setOver] = useState(false);
  const [progress, setProgress] = useState("");
  const put = async (folder: string, files: Promise<Upload[]>) => {
    const all = await files;
    if (folder !== ROOT && all.length) live.toggle(folder, true);
    if (await uploadFiles(agent, folder, all, setProgress)) await live.look();
  };
  const known = live.folders[ROOT] !== undefined;
  return (
    <div
      className={joinClasses(styles.files, over && styles.over)}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void put(ROOT, readDropped(event.dataTransfer));
      }}
    >
      <Bar agent={agent} put={(files) => void put(ROOT, Promise.resolve(files))} look={live.look} />
      {progress && (
        <p className={styles.filesProgress} role="status">
          {progress}
        </p>
      )}
      {live.problem && <Trouble text={live.problem} again={() => void live.look()} />}
      {!known && !live.problem && (
        <p className="waiting" role="status">
          Loading…
        </p>
      )}
      {known &&
        (rows.length ? (
          <Tree agent={agent} thread={thread} rows={rows} live={live} put={put} />
        ) : (
          <p className="empty">The workspace is empty. Drop files here to upload them.</p>
        ))}
      {Object.values(live.folders).some((folder) => folder.truncated) && (
        <p className="empty">Some folders have more entries than are shown; use the terminal to list all.</p>
      )}
    </div>
  );
}

function Bar({ agent, put, look }: { agent: string; put: (files: Upload[]) => void; look: () => Promise<void> }) {
  const [naming, setNaming] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  if (naming)
    return (
      <NewFile
        agent={agent}
        done={() => {
          setNaming(false);
          void look();
        }}
      />
    );
  return (
    <div className={styles.filesBar}>
      <button onClick={() => setNaming(true)}>New file</button>
      <button onClick={() => field.current?.click()}>Upload</button>
      <input
        ref={field}
        type="file"
        multiple
        hidden
        aria-label="Files to upload"
        onChange={(event) => {
          put(readChosen(event.target.files ?? []));
          event.target.value = "";
        }}
      />
      <span className="grow" />
      <button className="plain" aria-label="Refresh" title="Refresh" onClick={() => void look()}>
        <Icon name="again" />
      </button>
    </div>
  );
}

function NewFile({ agent, done }: { agent: string; done: () => void }) {
  const [path, setPath] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: React.FormEvent) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    if (!(await createFile(agent, path.trim()))) return setBusy(false);
    done();
    await openFile(path.trim());
  };
  return (
    <form
      className={styles.filesBar}
      onSubmit={(event) => void submit(event)}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          done();
        }
      }}
    >
      <label className="visually-hidden" htmlFor="new-path">
        Path of the new file
      </label>
      <input
        id="new-path"
        className="grow"
        autoFocus
        placeholder="notes/ideas.md"
        value={path}
        onChange={(event) => setPath(event.target.value)}
      />
      <button className="main" disabled={busy || !path.trim()}>
        Create
      </button>
      <button type="button" onClick={done}>
        Cancel
      </button>
    </form>
  );
}
