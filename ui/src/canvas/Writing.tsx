/** A file while the agent writes it: the end of the text, line by line. */

import { useEffect, useRef } from "react";

import { formatPlural } from "../parts/amounts";
import styles from "./writing.module.css";

const MOST_LINES = 400; // earlier ones are drawn once the file is complete

export function Writing({ text }: { text: string }) {
  const box = useRef<HTMLPreElement>(null);
  const lines = text.split("\n");
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight }); // not returned: it may be a promise
  }, [text]);
  return (
    <div className={styles.writing}>
      <p role="status">The agent is writing this file…</p>
      <pre ref={box} tabIndex={0} aria-label="Text so far">
        {lines.length > MOST_LINES && `… ${formatPlural(lines.length - MOST_LINES, "line")} above\n`}
        {lines.slice(-MOST_LINES).join("\n")}
      </pre>
    </div>
  );
}
