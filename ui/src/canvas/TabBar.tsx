/** The tabs of the canvas: arrow keys go along them, Delete closes one. */

import { type KeyboardEvent, useEffect, useRef } from "react";

import { showInvisible } from "./names";
import { activateTab, closeTab, isChanged, type Tab, useCanvas } from "./tabs";
import { joinClasses } from "../parts/classes";
import styles from "./canvas.module.css";

export function TabBar() {
  const tabs = useCanvas((state) => state.tabs);
  const active = useCanvas((state) => state.active);
  const bar = useRef<HTMLDivElement>(null);
  const chosen = () => bar.current?.querySelector<HTMLElement>("[aria-selected=true]");
  useEffect(() => {
    chosen()?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  }, [active]);
  const press = (event: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.id === active);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (event.key === "Delete") closeTab(active);
    else if (to !== undefined) activateTab(tabs[(to + tabs.length) % tabs.length]!.id);
    else return;
    event.preventDefault();
    requestAnimationFrame(() => chosen()?.focus());
  };
  return (
    <div className={styles.canvasTabs} role="tablist" aria-label="Open files" ref={bar} onKeyDown={press}>
      {tabs.map((tab) => (
        <One key={tab.id} tab={tab} active={tab.id === active} />
      ))}
    </div>
  );
}

function One({ tab, active }: { tab: Tab; active: boolean }) {
  const changed = isChanged(tab);
  return (
    <button
      role="tab"
      aria-selected={active}
      aria-controls="canvas-body"
      tabIndex={active ? 0 : -1}
      title={showInvisible(tab.file?.path ?? tab.name)}
      onClick={() => activateTab(tab.id)}
      onAuxClick={(event) => event.button === 1 && closeTab(tab.id)}
    >
      <span className={styles.tabName}>
        <bdi>{showInvisible(tab.name)}</bdi>
      </span>
      {changed && <span className="visually-hidden">, unsaved</span>}
      <span
        className={joinClasses(styles.tabClose, changed && styles.changed)}
        aria-hidden="true"
        onClick={(event) => {
          event.stopPropagation();
          closeTab(tab.id);
        }}
      />
    </button>
  );
}
