/** The label of a text by information flow: marks for untrusted text and for private data. Trusted text has none. */

import type { MessageLabel } from "../api";
import { showControls } from "./visible";
import styles from "./label.module.css";

/** `source` is the author of a result, such as the name of a tool. */
export function LabelMark({ label, source = "" }: { label: MessageLabel | null | undefined; source?: string }) {
  if (!label || (label.trusted && !label.private?.length)) return null;
  const from = source ? ` from ${showControls(source)}` : "";
  return (
    <span className={styles.labels}>
      {!label.trusted && (
        <span className={styles.untrusted} title={`Untrusted text${from}: not a trusted source`}>
          untrusted
        </span>
      )}
      {label.private?.map((name) => (
        <span key={name} className={styles.private} title={`Private data of ${showControls(name)} was read`}>
          private: {showControls(name)}
        </span>
      ))}
    </span>
  );
}
