/** The targets of a call without a trusted source, each with its passage in a text. */

import type { Approval } from "../api";
import { LabelMark } from "../parts/LabelMark";
import { showControls } from "../parts/visible";
import styles from "./targets.module.css";

interface Target {
  target: string;
  value: string;
  author?: string;
  entry?: number;
  passage?: string;
}

const UNTRUSTED = { trusted: false };

export function Targets({ asked }: { asked: Approval }) {
  const targets = targetsOf(asked);
  if (!targets.length) return null;
  return (
    <ul className={styles.targets} aria-label="Targets without a trusted source">
      {targets.map((one, at) => (
        <li key={at}>
          <span>{showControls(one.target)}</span> <code>{showControls(one.value)}</code>{" "}
          <LabelMark label={UNTRUSTED} source={one.author ?? ""} />{" "}
          <small>{one.author ? `${showControls(one.author)}, entry ${one.entry}` : "no source"}</small>
          {one.passage && <blockquote>{showControls(one.passage)}</blockquote>}
        </li>
      ))}
    </ul>
  );
}

/** Return the question's sentence; the targets that follow in its text are shown as a list instead. */
export function questionTitle(asked: Approval): string {
  const targets = targetsOf(asked);
  if (!targets.length) return asked.question;
  const planned = asked.about?.["planned"] === true ? "" : " It was not planned before untrusted text was read.";
  const count = targets.length === 1 ? "a target" : `${targets.length} targets`;
  return `May ${asked.tool ?? "the tool"} use ${count} that you did not name?${planned}`;
}

function targetsOf(asked: Approval): Target[] {
  const found = asked.about?.["targets"];
  return Array.isArray(found) ? (found as Target[]) : [];
}

export function hasSources(asked: Approval): boolean {
  const found = asked.about?.["sources"];
  return Array.isArray(found) && found.length > 0;
}
