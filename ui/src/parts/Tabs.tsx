/** A few pages in one place; arrows go from one to the next. */

import { type KeyboardEvent, type ReactNode, useId } from "react";
import styles from "./controls.module.css";

const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

interface Props<T extends string> {
  label: string;
  tabs: readonly (readonly [T, string])[];
  chosen: T;
  choose: (id: T) => void;
  children: ReactNode;
}

export function Tabs<T extends string>({ label, tabs, chosen, choose, children }: Props<T>) {
  const name = useId();
  const move = (event: KeyboardEvent<HTMLDivElement>) => {
    const at = tabs.findIndex(([id]) => id === chosen);
    const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : at + (STEPS[event.key] ?? 0);
    if (to === at && event.key !== "Home" && event.key !== "End") return;
    const next = tabs[(to + tabs.length) % tabs.length]!;
    event.preventDefault();
    choose(next[0]);
    event.currentTarget.querySelector<HTMLElement>(`[data-tab="${next[0]}"]`)?.focus();
  };
  return (
    <div className={styles.tabbed}>
      <div className={styles.tablist} role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(([id, title]) => (
          <button
            key={id}
            data-tab={id}
            id={`${name}-${id}`}
            role="tab"
            aria-selected={id === chosen}
            aria-controls={id === chosen ? name : undefined}
            tabIndex={id === chosen ? 0 : -1}
            onClick={() => choose(id)}
          >
            {title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={name} aria-labelledby={`${name}-${chosen}`} tabIndex={0}>
        {children}
      </div>
    </div>
  );
}
