import { useEffect } from "react";

import { Chat } from "./chat/Chat";
import { lazyPart } from "./parts/lazyPart";
import { useCommands, useShortcuts } from "./shell/commands";
import { Failing } from "./shell/Failing";
import { Notices } from "./shell/Notices";
import { Overlays } from "./shell/Overlays";
import type { PanelView } from "./shell/Side";
import { SignIn } from "./shell/SignIn";
import { TopBar } from "./shell/TopBar";
import { Workbench } from "./shell/Workbench";
import { app, openConversation, type Panel, useApp } from "./state/app";
import { shownPanels } from "./state/layout";
import styles from "./shell/shell.module.css";

const PANELS: Record<Panel, PanelView> = {
  canvas: { title: "Canvas", View: lazyPart(() => import("./panels/Canvas")) },
  files: { title: "Files", View: lazyPart(() => import("./panels/Files")) },
  terminal: { title: "Terminal", View: lazyPart(() => import("./panels/Terminal")) },
  agent: { title: "Agent", View: lazyPart(() => import("./panels/Agent")) },
  trace: { title: "Trace", View: lazyPart(() => import("./panels/Trace")) },
  usage: { title: "Usage", View: lazyPart(() => import("./panels/Usage")) },
  approvals: { title: "Approvals", View: lazyPart(() => import("./panels/Approvals")) },
  replay: { title: "Replay", View: lazyPart(() => import("./panels/Replay")) },
  evals: { title: "Evals", View: lazyPart(() => import("./panels/Evals")) },
  cluster: { title: "Cluster", View: lazyPart(() => import("./panels/Cluster")) },
  settings: { title: "Settings", View: lazyPart(() => import("./settings/Settings")) },
};
const NAMES = Object.entries(PANELS).map(([id, { title }]) => ({ id: id as Panel, title }));
const WITHOUT_ADMIN = NAMES.filter((one) => one.id !== "cluster");

export function App() {
  const me = useApp((state) => state.me);
  const theme = useApp((state) => state.theme);
  useEffect(() => {
    if (theme === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  if (me === undefined)
    return (
      <>
        <p className="waiting middle-of" role="status">
          Loading…
        </p>
        <Notices />
      </>
    );
  if (me === null)
    return (
      <>
        <SignIn />
        <Notices />
      </>
    );
  return <Desk />;
}

function Desk() {
  const panels = useApp((state) => (state.me?.role === "admin" ? NAMES : WITHOUT_ADMIN));
  const commands = useCommands(panels);
  useWrittenFiles();
  useShortcuts(commands);
  useTitle();
  useNoDrops();
  return (
    <div className={styles.desk}>
      <a
        className={styles.skip}
        href="#message"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("message")?.focus();
        }}
      >
        Skip to the message box
      </a>
      <TopBar panels={panels} />
      <Workbench views={PANELS}>
        <Failing what="The conversation">
          <Chat />
        </Failing>
      </Workbench>
      <Overlays commands={commands} panels={panels} />
      <Notices />
    </div>
  );
}

/** The canvas of a thread that is opened again shows the files that the agent wrote last, if it shows nothing yet. */
function useWrittenFiles(): void {
  const thread = useApp((state) => state.thread);
  const opened = useApp(
    (state) => shownPanels(state).includes("canvas") && openConversation(state).last > 0 && !state.files.length,
  );
  useEffect(() => {
    if (thread && opened)
      void import("./canvas/open").then(({ openWritten }) => openWritten(openConversation(app.get())));
  }, [thread, opened]);
}

/** Ignore files that are dropped outside of a drop target; the browser would replace the page. */
function useNoDrops(): void {
  useEffect(() => {
    const refuse = (event: Event) => event.preventDefault();
    for (const kind of ["dragover", "drop"]) addEventListener(kind, refuse);
    return () => ["dragover", "drop"].forEach((kind) => removeEventListener(kind, refuse));
  }, []);
}

/** Set the window title to the open thread, with a mark for pending questions. */
function useTitle(): void {
  const title = useApp((state) => state.threads.find((one) => one.id === state.thread)?.title ?? "");
  const asked = useApp((state) => state.approvals.length);
  useEffect(() => {
    document.title = `${asked ? `(${asked}) ` : ""}${title ? `${title} · ` : ""}wick`;
  }, [title, asked]);
}
