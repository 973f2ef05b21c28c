/** The onion, drawn: an operation at the heart, a ring for each hook around it, the guards at its gate innermost. */

import { useId, useState } from "react";
import { formatPlural } from "./amounts";
import { joinClasses } from "./classes";
import styles from "./onion.module.css";

export interface Ring {
  name: string;
  position: "before" | "wrap" | "after" | "guard";
  source?: string;
  fail?: string;
  match?: string;
  did?: string; // its decisions in the shown run
  acted?: boolean; // True if it did more than pass
}

const WIDTH = 15;
const HEART = 46;
const LETTER = 4.6; // about the width of one, in the size of the names

export function Onion({ operation, rings }: { operation: string; rings: Ring[] }) {
  const [chosen, choose] = useState<number | null>(null);
  const radius = HEART + rings.length * WIDTH + 4;
  const shown = chosen === null ? undefined : rings[chosen];
  return (
    <figure className={styles.onion}>
      <svg
        viewBox={`${-radius} ${-radius} ${2 * radius} ${2 * radius}`}
        role="group"
        aria-label={`The rings of ${operationName(operation)}, outermost first`}
      >
        {rings.map((ring, at) => (
          <Drawn
            key={ring.name}
            ring={ring}
            radius={HEART + (rings.length - at) * WIDTH - WIDTH / 2}
            chosen={chosen === at}
            choose={(on) => choose(on ? at : null)}
          />
        ))}
        <circle className={styles.heart} r={HEART - 5} />
        <text className={styles.operation} textAnchor="middle" dominantBaseline="central">
          {operationName(operation)}
        </text>
      </svg>
      <figcaption aria-live="polite">{shown ? describeRing(shown) : summarizeOnion(operation, rings)}</figcaption>
    </figure>
  );
}

interface DrawnProps {
  ring: Ring;
  radius: number;
  chosen: boolean;
  choose: (on: boolean) => void;
}

function Drawn({ ring, radius, chosen, choose }: DrawnProps) {
  const path = useId();
  return (
    <g
      className={joinClasses(styles.ring, ring.acted && styles.acted, chosen && styles.chosen)}
      data-position={ring.position}
    >
      <circle
        r={radius}
        strokeWidth={WIDTH - 2}
        tabIndex={0}
        role="img"
        aria-label={describeRing(ring)}
        onMouseEnter={() => choose(true)}
        onFocus={() => choose(true)}
        onMouseLeave={() => choose(false)}
        onBlur={() => choose(false)}
      />
      <path id={path} d={`M ${-radius} 0 A ${radius} ${radius} 0 0 1 ${radius} 0`} fill="none" />
      <text aria-hidden="true" dy="2.6">
        <textPath href={`#${path}`} startOffset="50%" textAnchor="middle">
          {fitName(ring.name, Math.PI * radius)}
        </textPath>
      </text>
    </g>
  );
}

const fitName = (name: string, room: number): string =>
  name.length * LETTER < room ? name : `${name.slice(0, Math.floor(room / LETTER) - 1)}…`;

const operationName = (operation: string): string => operation.replace("_", " ");

function summarizeOnion(operation: string, rings: Ring[]): string {
  return rings.length
    ? `${formatPlural(rings.length, "hook")} around every ${operationName(operation)}`
    : `No hooks around a ${operationName(operation)}`;
}

export function describeRing(ring: Ring): string {
  const parts = [
    `${ring.name} (${ring.position}`,
    ring.match ? `, for ${ring.match}` : "",
    ring.source ? `, from ${ring.source}` : "",
    ring.fail ? `, fails ${ring.fail}` : "",
    ")",
  ];
  return parts.join("") + (ring.did ? `: ${ring.did}` : "");
}
