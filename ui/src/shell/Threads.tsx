import { useEffect, useState } from "react";

import * as api from "../api";
import { app, attempt, moreThreads, newThread, openThread, patch, useApp } from "../state/app";

export function Threads() {
  const { threads, thread, more } = useApp((state) => state);
  const [wanted, setWanted] = useState("");
  const hits = useSearch(wanted);
  return (
    <nav className="threads" aria-label="Threads">
      <button className="main" onClick={newThread}>New thread</button>
      <label className="visually-hidden" htmlFor="search">Search threads</label>
      <input id="search" type="search" placeholder="Search" value={wanted} onChange={(event) => setWanted(event.target.value)} />
      {hits ? (
        <ul>
          {hits.map((hit) => <li key={`${hit.thread_id}${hit.seq}`}><button className="thread" onClick={() => void openThread(hit.thread_id)}><b>{hit.title || "Untitled"}</b><small>{hit.text}</small></button></li>)}
          {!hits.length && <li className="empty">Nothing has these words in it.</li>}
        </ul>
      ) : (
        <ul>
          {threads.map((one) => <Row key={one.id} one={one} open={one.id === thread} />)}
          {!threads.length && <li className="empty">What you talk about is kept here.</li>}
          {more && <li><button className="plain" onClick={() => void moreThreads()}>Older threads</button></li>}
        </ul>
      )}
    </nav>
  );
}

function Row({ one, open }: { one: api.Thread; open: boolean }) {
  const [renaming, setRenaming] = useState(false);
  const title = one.title || "Untitled";
  if (renaming) return <li><Rename one={one} done={() => setRenaming(false)} /></li>;
  return (
    <li className="thread-row">
      <button className="thread" aria-current={open ? "true" : undefined} onClick={() => void openThread(one.id)}>
        <b>{title}</b>
        <small>{one.asking ? "waits for you" : one.running ? "working" : ago(one.updated)}</small>
      </button>
      <span className="row-actions">
        <button className="plain" aria-label={`Rename ${title}`} onClick={() => setRenaming(true)}>✎</button>
        <a className="plain" aria-label={`Export ${title}`} href={api.threads.exportUrl(one.id, "markdown")} download>⤓</a>
        <button className="plain" aria-label={`Delete ${title}`} onClick={() => void remove(one)}>🗑</button>
      </span>
    </li>
  );
}

function Rename({ one, done }: { one: api.Thread; done: () => void }) {
  const [title, setTitle] = useState(one.title ?? "");
  const save = async (event: React.FormEvent) => {
    event.preventDefault();
    const changed = title.trim() ? await attempt(() => api.threads.rename(one.id, title.trim())) : undefined;
    if (changed) app.set((old) => ({ ...old, threads: old.threads.map((row) => (row.id === one.id ? changed : row)) }));
    done();
  };
  return (
    <form onSubmit={(event) => void save(event)}>
      <input aria-label="Title" autoFocus value={title} onChange={(event) => setTitle(event.target.value)} onKeyDown={(event) => event.key === "Escape" && done()} onBlur={done} />
    </form>
  );
}

async function remove(one: api.Thread): Promise<void> {
  if (!confirm(`Delete “${one.title || "Untitled"}” for good?`)) return;
  await attempt(async () => {
    await api.threads.remove(one.id);
    if (app.get().thread === one.id) newThread();
    patch({ threads: app.get().threads.filter((row) => row.id !== one.id) });
  });
}

function useSearch(wanted: string): api.Hit[] | null {
  const [hits, setHits] = useState<api.Hit[] | null>(null);
  useEffect(() => {
    if (!wanted.trim()) return setHits(null);
    let late = false;
    const timer = setTimeout(() => void attempt(() => api.threads.search(wanted.trim())).then((found) => !late && found && setHits(found.hits)), 200);
    return () => {
      late = true;
      clearTimeout(timer);
    };
  }, [wanted]);
  return hits;
}

export function ago(at: number, now = Date.now() / 1000): string {
  const seconds = Math.max(0, now - at);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString();
}
