/** The files of the agent's workspace, as they are right now. */

import "./Files.css";

import { useMemo, useRef, useState } from "react";

import { Icon } from "../shell/Icon";
import { useApp } from "../state/app";
import { begin, upload } from "./filesActions";
import { useFolders } from "./filesLive";
import { ROOT, rowsOf } from "./filesTree";
import { Tree } from "./FilesTree";

export default function Files() {
  const agent = useApp((state) => state.agent);
  const thread = useApp((state) => state.thread);
  const live = useFolders(agent, thread);
  const rows = useMemo(() => rowsOf(live.folders, live.open), [live.folders, live.open]);
  const [over, setOver] = useState(false);
  const put = async (folder: string, files: Iterable<File>) => {
    const all = [...files];
    if (folder !== ROOT && all.length) live.toggle(folder, true);
    if (await upload(agent, folder, all)) await live.look();
  };
  if (live.problem) return <p className="empty" role="alert">{live.problem} <button onClick={() => void live.look()}>Try again</button></p>;
  const known = live.folders[ROOT];
  return (
    <div
      className={over ? "files over" : "files"}
      onDragOver={(event) => { event.preventDefault(); setOver(true); }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); void put(ROOT, event.dataTransfer.files); }}
    >
      <Bar agent={agent} put={(files) => void put(ROOT, files)} look={live.look} />
      {!known ? <p className="waiting" role="status">Looking…</p> : rows.length ? <Tree agent={agent} thread={thread} rows={rows} live={live} put={put} /> : <p className="empty">The workspace is empty. Ask the agent to write something, or drop files here.</p>}
      {Object.values(live.folders).some((folder) => folder.truncated) && <p className="empty">Some folders have more in them than is shown; the terminal shows all of it.</p>}
    </div>
  );
}

function Bar({ agent, put, look }: { agent: string; put: (files: Iterable<File>) => void; look: () => Promise<void> }) {
  const [naming, setNaming] = useState(false);
  const chosen = useRef<HTMLInputElement>(null);
  if (naming) return <NewFile agent={agent} done={() => { setNaming(false); void look(); }} />;
  return (
    <div className="files-bar">
      <button onClick={() => setNaming(true)}>New file</button>
      <button onClick={() => chosen.current?.click()}>Upload</button>
      <input ref={chosen} type="file" multiple hidden aria-label="Files to upload" onChange={(event) => { put([...(event.target.files ?? [])]); event.target.value = ""; }} />
      <span className="grow" />
      <button className="plain" aria-label="Look again" title="Look again" onClick={() => void look()}><Icon name="again" /></button>
    </div>
  );
}

function NewFile({ agent, done }: { agent: string; done: () => void }) {
  const [path, setPath] = useState("");
  const submit = async (event: React.FormEvent) => {
    event.preventDefault();
    if (!(await begin(agent, path.trim()))) return;
    done();
    void (await import("../canvas/open")).openFile(path.trim());
  };
  return (
    <form className="files-bar" onSubmit={(event) => void submit(event)} onKeyDown={(event) => { if (event.key === "Escape") { event.stopPropagation(); done(); } }}>
      <label className="visually-hidden" htmlFor="new-path">Path of the new file</label>
      <input id="new-path" className="grow" autoFocus placeholder="notes/ideas.md" value={path} onChange={(event) => setPath(event.target.value)} />
      <button className="main" disabled={!path.trim()}>Create</button>
      <button type="button" onClick={done}>Cancel</button>
    </form>
  );
}
