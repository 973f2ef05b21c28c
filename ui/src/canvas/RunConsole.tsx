/** The console of a page that runs on the canvas. */

import { useEffect, useRef } from "react";

import { formatPlural } from "../parts/amounts";
import type { Entry } from "./runMessages";
import styles from "./run.module.css";

interface Props {
  entries: Entry[];
  clear: () => void;
  restart: () => void;
  fix: () => void;
}

export function RunConsole({ entries, clear, restart, fix }: Props) {
  const list = useRef<HTMLOListElement>(null);
  const errors = entries.filter((one) => one.level === "error").length;
  useEffect(() => {
    list.current?.scrollTo({ top: list.current.scrollHeight }); // not returned: it may be a promise
  }, [entries]);
  return (
    <section className={styles.console} aria-label="Console">
      <header className={styles.bar}>
        <b>Console</b>
        <small role="status">{errors ? formatPlural(errors, "error") : ""}</small>
        <span className="grow" />
        {errors > 0 && (
          <button className="main" onClick={fix} title="Send the errors to the agent">
            Fix this
          </button>
        )}
        <button onClick={restart}>Run again</button>
        <button onClick={clear} disabled={!entries.length}>
          Clear
        </button>
      </header>
      {entries.length > 0 && (
        <ol ref={list} className={styles.entries} tabIndex={0} aria-label="Console output">
          {entries.map(({ level, text }, at) => (
            <li key={at} data-level={level}>
              {level === "error" && <span className="visually-hidden">Error: </span>}
              {text}
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
