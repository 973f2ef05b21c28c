/** The onion, drawn: an operation at the heart, a ring for each hook around it, the gate in between. */

import { useState } from "react";

export interface Ring {
  name: string;
  position: "before" | "wrap" | "after" | "guard";
  source?: string;
  fail?: string;
  match?: string;
  did?: string; // what it did in the run that is shown
}

const COLOURS: Record<Ring["position"], string> = { after: "var(--link)", wrap: "var(--quiet)", before: "var(--good)", guard: "var(--flame)" };
const WIDTH = 13;
const HEART = 44;

export function Onion({ operation, rings }: { operation: string; rings: Ring[] }) {
  const [chosen, choose] = useState<number | null>(null);
  const radius = HEART + rings.length * WIDTH + 4;
  const shown = chosen === null ? null : rings[chosen];
  return (
    <figure className="onion">
      <svg viewBox={`${-radius} ${-radius} ${2 * radius} ${2 * radius}`} role="group" aria-label={`The rings of ${operation}, outermost first`}>
        {rings.map((ring, at) => (
          <circle
            key={ring.name}
            r={HEART + (rings.length - at) * WIDTH - WIDTH / 2}
            fill="none"
            stroke={COLOURS[ring.position]}
            strokeWidth={chosen === at ? WIDTH - 2 : WIDTH - 6}
            strokeOpacity={ring.did && ring.did !== "pass" ? 1 : 0.55}
            strokeDasharray={ring.position === "guard" ? "4 3" : undefined}
            tabIndex={0}
            role="img"
            aria-label={sentence(ring)}
            onMouseEnter={() => choose(at)}
            onFocus={() => choose(at)}
            onMouseLeave={() => choose(null)}
            onBlur={() => choose(null)}
          >
            <title>{sentence(ring)}</title>
          </circle>
        ))}
        <circle r={HEART - 6} fill="var(--flame-soft)" stroke="var(--flame)" />
        <text textAnchor="middle" dominantBaseline="central" fontSize="11" fill="var(--ink)">
          {operation.replace("_", " ")}
        </text>
      </svg>
      <figcaption aria-live="polite">{shown ? sentence(shown) : rings.length ? `${rings.length} hooks around every ${operation.replace("_", " ")}` : "no hooks"}</figcaption>
    </figure>
  );
}

function sentence(ring: Ring): string {
  const parts = [`${ring.name} (${ring.position}`, ring.match ? `, for ${ring.match}` : "", ring.source ? `, from ${ring.source}` : "", ring.fail ? `, fails ${ring.fail}` : "", ")"];
  return parts.join("") + (ring.did ? `: ${ring.did}` : "");
}
