import { memo, Suspense, useEffect, useRef, useState } from "react";

import * as api from "../api";
import { lazyPart } from "../parts/lazyPart";
import { tryRequest, useApp } from "../state/app";
import { moreThreads } from "../state/lists";
import { newThread, openThread, removeThread, renameThread } from "../state/threads";
import { formatAgo, groupByDay } from "./ago";
import { Dialog } from "./Dialog";
import { Icon } from "./Icon";
import styles from "./shell.module.css";

const Share = lazyPart(() => import("./Share"));

export function Threads() {
  const [wanted, setWanted] = useState("");
  const hits = useSearch(wanted);
  const clear = (event: React.KeyboardEvent) => {
    if (event.key !== "Escape" || !wanted) return;
    event.preventDefault(); // it is for the search, and not for a panel
    setWanted("");
  };
  return (
    <nav className={styles.threads} aria-label="Threads">
      <button className="main" onClick={newThread}>
        <Icon name="plus" /> New thread
      </button>
      <label className="visually-hidden" htmlFor="search">
        Search threads
      </label>
      <input
        id="search"
        type="search"
        placeholder="Search"
        value={wanted}
        onChange={(event) => setWanted(event.target.value)}
        maxLength={500}
        onKeyDown={clear}
      />
      {hits ? <Hits hits={hits} /> : <Rows />}
    </nav>
  );
}

function Hits({ hits }: { hits: api.Hit[] }) {
  return (
    <ul aria-label="Search results">
      {hits.map((hit) => (
        <li key={`${hit.thread_id}${hit.seq}`}>
          <button className={styles.thread} onClick={() => void openThread(hit.thread_id, hit.seq)}>
            <b>{hit.title || "Untitled"}</b>
            <small>{hit.text}</small>
          </button>
        </li>
      ))}
      {!hits.length && <li className="empty">No results.</li>}
    </ul>
  );
}

function Rows() {
  const threads = useApp((state) => state.threads);
  const thread = useApp((state) => state.thread);
  const more = useApp((state) => state.more);
  return (
    <div className={styles.rows}>
      {groupByDay(threads).map(([day, some]) => (
        <section key={day} aria-label={day}>
          <h2>{day}</h2>
          <ul>
            {some.map((one) => (
              <Row key={one.id} one={one} open={one.id === thread} />
            ))}
          </ul>
        </section>
      ))}
      {!threads.length && <p className="empty">No threads yet. Send a message to start one.</p>}
      {more && (
        <button className="plain" onClick={() => void moreThreads()}>
          Older threads
        </button>
      )}
    </div>
  );
}

const Row = memo(function Row({ one, open }: { one: api.Thread; open: boolean }) {
  const [doing, setDoing] = useState<"" | "rename" | "delete" | "export" | "share">("");
  const title = one.title || "Untitled";
  const done = () => setDoing("");
  if (doing === "rename")
    return (
      <li>
        <Rename one={one} done={done} />
      </li>
    );
  return (
    <li className={styles.threadRow}>
      <button
        className={styles.thread}
        aria-current={open ? "true" : undefined}
        onClick={() => void openThread(one.id)}
      >
        <b>{title}</b>
        <small className={one.asking ? styles.asks : one.running ? styles.works : undefined}>
          {one.asking ? "needs approval" : one.running ? "running" : formatAgo(one.updated)}
        </small>
      </button>
      <span className={styles.rowActions}>
        <button className="plain" aria-label={`Rename ${title}`} title="Rename" onClick={() => setDoing("rename")}>
          <Icon name="pen" />
        </button>
        <button className="plain" aria-label={`Export ${title}`} title="Export" onClick={() => setDoing("export")}>
          <Icon name="down" />
        </button>
        <button className="plain" aria-label={`Share ${title}`} title="Share" onClick={() => setDoing("share")}>
          <Icon name="share" />
        </button>
        <button className="plain" aria-label={`Delete ${title}`} title="Delete" onClick={() => setDoing("delete")}>
          <Icon name="bin" />
        </button>
      </span>
      {doing === "delete" && <Delete one={one} done={done} />}
      {doing === "export" && <Export one={one} done={done} />}
      {doing === "share" && (
        <Suspense>
          <Share one={one} done={done} />
        </Suspense>
      )}
    </li>
  );
});

function Rename({ one, done }: { one: api.Thread; done: () => void }) {
  const [title, setTitle] = useState(one.title ?? "");
  const left = useRef(false);
  const save = () => {
    if (left.current) return;
    left.current = true; // leaving the field saves, and so does Enter, which leaves it
    done();
    if (title.trim() && title.trim() !== one.title) void renameThread(one.id, title);
  };
  const key = (event: React.KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    left.current = true;
    done();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <input
        aria-label="Title"
        autoFocus
        maxLength={500}
        value={title}
        onFocus={(event) => event.target.select()}
        onChange={(event) => setTitle(event.target.value)}
        onKeyDown={key}
        onBlur={save}
      />
    </form>
  );
}

function Delete({ one, done }: { one: api.Thread; done: () => void }) {
  const remove = () => (done(), void removeThread(one.id));
  return (
    <Dialog title="Delete thread" close={done}>
      <h2>Delete “{one.title || "Untitled"}”?</h2>
      <p>All its messages are deleted permanently. {one.run_id ? "Its run is stopped." : ""}</p>
      <div className="choices">
        <button className="no" onClick={remove}>
          Delete
        </button>
        <button data-first onClick={done}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

function Export({ one, done }: { one: api.Thread; done: () => void }) {
  return (
    <Dialog title="Export thread" close={done}>
      <h2>Export “{one.title || "Untitled"}”</h2>
      <div className="choices">
        <a className="button" data-first href={api.threads.exportUrl(one.id, "markdown")} download onClick={done}>
          Markdown (messages)
        </a>
        <a className="button" href={api.threads.exportUrl(one.id, "json")} download onClick={done}>
          JSON (full log)
        </a>
        <button onClick={done}>Cancel</button>
      </div>
    </Dialog>
  );
}

function useSearch(wanted: string): api.Hit[] | null {
  const [hits, setHits] = useState<api.Hit[] | null>(null);
  useEffect(() => {
    if (!wanted.trim()) return setHits(null);
    let late = false;
    const timer = setTimeout(
      () =>
        void tryRequest(() => api.threads.search(wanted.trim())).then((found) => !late && found && setHits(found.hits)),
      200,
    );
    return () => {
      late = true;
      clearTimeout(timer);
    };
  }, [wanted]);
  return hits;
}
