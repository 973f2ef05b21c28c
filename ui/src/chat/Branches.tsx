/** The versions of a message that was edited or retried: `‹ 1/2 ›`. */

import { openConversation, useApp } from "../state/app";
import { switchBranch } from "../state/talk";
import styles from "./branches.module.css";

interface Props {
  seq: number;
  branches: number[];
}

export function Branches({ seq, branches }: Props) {
  const running = useApp((state) => Boolean(openConversation(state).run));
  const at = branches.indexOf(seq);
  // not `disabled`, which would drop the focus at the first and the last version
  const arrow = (name: string, sign: string, to: number | undefined) => (
    <button
      className="plain"
      aria-label={name}
      title={running ? `${name} (after the run)` : name}
      aria-disabled={running || to === undefined}
      onClick={() => to !== undefined && !running && void switchBranch(to)}
    >
      {sign}
    </button>
  );
  return (
    <div className={styles.branches} role="group" aria-label="Versions of this message">
      {arrow("Previous version", "‹", branches[at - 1])}
      <span role="status">
        <span className="visually-hidden">Version </span>
        {at + 1}/{branches.length}
      </span>
      {arrow("Next version", "›", branches[at + 1])}
    </div>
  );
}

/** The version that an arrow key on a message leads to, if any. */
export function branchOfKey(event: React.KeyboardEvent, { seq, branches }: Props): number | undefined {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const plain = event.target === event.currentTarget && !event.altKey && !event.ctrlKey && !event.metaKey;
  return by && plain ? branches[branches.indexOf(seq) + by] : undefined;
}
