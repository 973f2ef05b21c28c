/** Threads, conversation and panels side by side, with borders that can be moved. A narrow page shows one of them. */

import { Group, Panel as Pane, Separator, useDefaultLayout } from "react-resizable-panels";

import { type Panel, patchApp, useApp } from "../state/app";
import { shownPanels } from "../state/layout";
import { type PanelView, Side } from "./Side";
import { Threads } from "./Threads";
import { useNarrow } from "./useNarrow";
import styles from "./layout.module.css";

type Views = Record<Panel, PanelView>;

export function Workbench({ views, children }: { views: Views; children: React.ReactNode }) {
  const narrow = useNarrow();
  const threads = useApp((state) => state.sidebar) && !narrow;
  const front = useApp((state) => shownPanels(state)[0]);
  const side = front !== undefined;
  const wide = useApp((state) => state.wide) && side && !narrow;
  const sizes = useSizes("desk", [threads && "threads-pane", "chat-pane", side && "side-pane"]);
  return (
    <>
      {narrow && <Drawer />}
      <Group className={styles.workbench} data-wide={wide || undefined} {...sizes}>
        {threads && (
          <>
            <Pane
              id="threads-pane"
              className={styles.pane}
              defaultSize={260}
              minSize={170}
              maxSize="40%"
              groupResizeBehavior="preserve-pixel-size"
            >
              <Threads />
            </Pane>
            <Border between="threads and conversation" />
          </>
        )}
        <Pane id="chat-pane" className={styles.pane} minSize={narrow ? 0 : 300}>
          <main className={styles.middle}>{children}</main>
        </Pane>
        {side && (
          <>
            {!narrow && <Border between="conversation and panels" />}
            <Pane id="side-pane" className={styles.pane} defaultSize="46%" minSize={300}>
              <Panels views={views} only={narrow ? front : undefined} />
            </Pane>
          </>
        )}
      </Group>
    </>
  );
}

/** The panels in their places. Where there is room for `only` one, the others stay mounted: their forms keep their entries. */
function Panels({ views, only }: { views: Views; only: Panel | undefined }) {
  const panel = useApp((state) => state.panel);
  const beside = useApp((state) => (state.beside === state.panel ? null : state.beside));
  const below = useApp((state) => (shownPanels(state).indexOf(state.below!) > 0 || !state.panel ? state.below : null));
  const above = panel !== null || beside !== null;
  const rows = useSizes("rows", [above && "above-pane", below && "below-pane"]);
  const columns = useSizes("columns", [beside && "beside-pane", panel && "main-pane"]);
  const row = only && (only === panel || only === beside ? "above" : "below");
  const column = only && (only === panel ? "main" : "beside");
  return (
    <Group orientation="vertical" className={styles.places} data-only={row} {...rows}>
      {above && (
        <Pane id="above-pane" className={styles.pane} minSize={120}>
          <Group className={styles.places} data-only={column} {...columns}>
            {beside && (
              <Pane id="beside-pane" className={styles.pane} defaultSize="36%" minSize={150}>
                <Side key={beside} panel={beside} {...views[beside]} />
              </Pane>
            )}
            {beside && panel && <Border between={`${views[beside].title} and ${views[panel].title}`} />}
            {panel && (
              <Pane id="main-pane" className={styles.pane} minSize={200}>
                <Side key={panel} panel={panel} {...views[panel]} />
              </Pane>
            )}
          </Group>
        </Pane>
      )}
      {above && below && <Border between={`${views[(panel ?? beside)!].title} and ${views[below].title}`} />}
      {below && (
        <Pane id="below-pane" className={styles.pane} defaultSize="38%" minSize={100}>
          <Side key={below} panel={below} {...views[below]} />
        </Pane>
      )}
    </Group>
  );
}

const Border = ({ between }: { between: string }) => (
  <Separator className={styles.border} aria-label={`Border between ${between}`} />
);

/** The sizes that the user gave the panes, for each set of panes. */
function useSizes(id: string, panes: (string | false | null)[]) {
  const panelIds = panes.filter((one) => typeof one === "string");
  return useDefaultLayout({ id: `wick-${id}`, panelIds, storage: localStorage, onlySaveAfterUserInteractions: true });
}

function Drawer() {
  const drawer = useApp((state) => state.drawer);
  return (
    <>
      <div className={styles.drawer} data-open={drawer || undefined}>
        <Threads />
      </div>
      {drawer && (
        <button className={styles.shade} aria-label="Close threads" onClick={() => patchApp({ drawer: false })} />
      )}
    </>
  );
}
