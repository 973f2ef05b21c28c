/** The times above a waterfall. */

import { formatDuration } from "../../parts/spans";
import type { View } from "./zoom";
import styles from "./trace.module.css";

const MARKS = [0, 0.25, 0.5, 0.75, 1];

export function Axis({ view }: { view: View }) {
  return (
    <div className={styles.axis} aria-hidden="true">
      <span />
      <span>
        {MARKS.map((share) => (
          <small key={share} style={share === 1 ? { right: 0 } : { left: `${share * 100}%` }}>
            {formatDuration(view.from + (view.to - view.from) * share)}
          </small>
        ))}
      </span>
    </div>
  );
}
