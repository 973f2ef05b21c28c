/** A document as people read it, with the pictures of its workspace. */

import { useMemo } from "react";

import { Markdown } from "../parts/Markdown";
import { findCodeLines } from "./codeLines";
import { Named } from "./Picture";
import type { Tab } from "./tabs";
import styles from "./canvas.module.css";

type Piece = { text: string } | { words: string; name: string };

/** Split a text into images on their own lines and the text between them. */
export function splitPictures(text: string): Piece[] {
  const found: Piece[] = [];
  let plain: string[] = [];
  const lines = text
    .replace(/\r\n/g, "\n")
    .replace(/^---\n(?:[\w-]+:.*\n)*---\n/, "")
    .split("\n");
  const code = findCodeLines(lines);
  for (const [at, line] of lines.entries()) {
    const picture = code[at] ? null : /^!\[([^\]]*)\]\(([^)\s]+)\)\s*$/.exec(line);
    if (!picture) plain.push(line);
    else {
      found.push({ text: plain.join("\n") }, { words: picture[1]!, name: picture[2]! });
      plain = [];
    }
  }
  return [...found, { text: plain.join("\n") }].filter((piece) => !("text" in piece) || piece.text.trim());
}

export default function Document({ tab }: { tab: Tab }) {
  const all = useMemo(() => splitPictures(tab.text), [tab.text]);
  if (!all.length) return <p className="empty">This document is empty. Switch to Code to edit it.</p>;
  return (
    <article className={styles.document} tabIndex={0} aria-label={tab.name}>
      {all.map((piece, at) =>
        "text" in piece ? <Markdown key={at} text={piece.text} /> : <Named key={at} file={tab.file} {...piece} />,
      )}
    </article>
  );
}
