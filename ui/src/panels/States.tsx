/** Placeholders while data is loading or has failed. */

import type { ReactNode } from "react";

import type { Loaded } from "./useLoad";
import styles from "./panels.module.css";

export function Show<T>({ of, what, children }: { of: Loaded<T>; what: string; children: (data: T) => ReactNode }) {
  const { data, error } = of;
  if (data === undefined && !error)
    return (
      <p className="waiting" role="status">
        Loading {what}…
      </p>
    );
  return (
    <>
      {error && <Trouble text={error} again={of.reload} />}
      {data !== undefined && children(data)}
    </>
  ); // drafts in the panel are kept
}

export function Trouble({ text, again }: { text: string; again: () => void }) {
  return (
    <div className={styles.trouble} role="alert">
      <p>{toSentence(text)}</p>
      <button onClick={again}>Try again</button>
    </div>
  );
}

/** Format a server message as a sentence. */
export function toSentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
