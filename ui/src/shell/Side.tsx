/** A panel with its heading and the actions of its place. */

import { Suspense, useEffect, useRef } from "react";

import { app, type Panel, patchApp, useApp } from "../state/app";
import { closePanel, swapPanels } from "../state/layout";
import { Failing } from "./Failing";
import { Icon } from "./Icon";
import { useNarrow } from "./useNarrow";
import styles from "./layout.module.css";

export interface PanelView {
  title: string;
  View: React.ComponentType;
}

export function Side({ panel, title, View }: PanelView & { panel: Panel }) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const writing = document.activeElement instanceof HTMLTextAreaElement;
    if (!writing) head.current?.focus({ preventScroll: true }); // do not move the focus while the user types
  }, []);
  return (
    <aside className={styles.side} aria-label={title} data-shows={panel}>
      <header className={styles.sideHead}>
        <h2 ref={head} tabIndex={-1}>
          {title}
        </h2>
        <span className="grow" />
        <Places panel={panel} title={title} />
        <button className="plain" onClick={() => closePanel(panel)} aria-label={`Close ${title}`} title="Close">
          <Icon name="close" />
        </button>
      </header>
      <div className={styles.sideBody}>
        <Failing what={title}>
          <Suspense
            fallback={
              <p className="waiting" role="status">
                Loading…
              </p>
            }
          >
            <View />
          </Suspense>
        </Failing>
      </div>
    </aside>
  );
}

/** Move a panel, or give it the full width. The panel beside the main one has neither. */
function Places({ panel, title }: { panel: Panel; title: string }) {
  const isBelow = useApp((state) => state.below === panel);
  const isMain = useApp((state) => state.panel === panel);
  const wide = useApp((state) => state.wide);
  if (useNarrow() || (!isBelow && !isMain)) return null;
  const place = isBelow ? "Move up" : "Move below";
  return (
    <>
      <button
        className="plain"
        aria-label={`${place}: ${title}`}
        title={place}
        onClick={() => patchApp(swapPanels(app.get()))}
      >
        <Icon name={isBelow ? "raise" : "lower"} />
      </button>
      <button
        className="plain"
        aria-label={`Full width: ${title}`}
        title="Full width (F)"
        aria-pressed={wide}
        onClick={() => patchApp({ wide: !wide })}
      >
        <Icon name={wide ? "shrink" : "expand"} />
      </button>
    </>
  );
}
