import { lazy, Suspense, useEffect } from "react";

import { Chat } from "./chat/Chat";
import { Dialogs } from "./chat/Dialogs";
import { useCommands, useShortcuts } from "./shell/commands";
import { Notices } from "./shell/Notices";
import { Overlays } from "./shell/Overlays";
import { SignIn } from "./shell/SignIn";
import { Threads } from "./shell/Threads";
import { TopBar } from "./shell/TopBar";
import { type Panel, patch, useApp } from "./state/app";

const PANELS: Record<Panel, { title: string; View: React.ComponentType }> = {
  canvas: { title: "Canvas", View: lazy(() => import("./panels/Canvas")) },
  files: { title: "Files", View: lazy(() => import("./panels/Files")) },
  terminal: { title: "Terminal", View: lazy(() => import("./panels/Terminal")) },
  agent: { title: "Agent", View: lazy(() => import("./panels/Agent")) },
  trace: { title: "Trace", View: lazy(() => import("./panels/Trace")) },
  usage: { title: "Usage", View: lazy(() => import("./panels/Usage")) },
  approvals: { title: "Approvals", View: lazy(() => import("./panels/Approvals")) },
  replay: { title: "Replay", View: lazy(() => import("./panels/Replay")) },
};

export function App() {
  const me = useApp((state) => state.me);
  const theme = useApp((state) => state.theme);
  useEffect(() => {
    if (theme === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  if (me === undefined) return <p className="waiting" role="status">Opening wick…</p>;
  if (me === null) return <><SignIn /><Notices /></>;
  return <Desk />;
}

function Desk() {
  const panel = useApp((state) => state.panel);
  const commands = useCommands(Object.entries(PANELS).map(([id, { title }]) => ({ id: id as Panel, title })));
  useShortcuts(commands);
  return (
    <div className="desk" data-panel={panel ?? ""}>
      <a className="skip" href="#message">Skip to the message</a>
      <TopBar panels={Object.entries(PANELS).map(([id, { title }]) => [id as Panel, title])} />
      <Threads />
      <main className="middle"><Chat /></main>
      {panel && (
        <aside className="side" aria-label={PANELS[panel].title}>
          <header className="side-head">
            <h2>{PANELS[panel].title}</h2>
            <button className="plain" onClick={() => patch({ panel: null })} aria-label={`Close ${PANELS[panel].title}`}>✕</button>
          </header>
          <Suspense fallback={<p className="waiting" role="status">Loading…</p>}><Show panel={panel} /></Suspense>
        </aside>
      )}
      <Dialogs />
      <Overlays commands={commands} />
      <Notices />
    </div>
  );
}

function Show({ panel }: { panel: Panel }) {
  const { View } = PANELS[panel];
  return <View />;
}
