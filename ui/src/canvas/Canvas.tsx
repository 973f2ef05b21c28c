/** The canvas: open tabs and the active one. */

import { type KeyboardEvent, Suspense, useEffect, useState } from "react";

import { lazyPart } from "../parts/lazyPart";
import { app, openConversation } from "../state/app";
import { onFileChange } from "../state/changes";
import { showPanel } from "../state/layout";
import { useProposal } from "./changes";
import { useWriting } from "./drafts";
import { findOnce, setSelected } from "./selection";
import { SelectionBar } from "./SelectionBar";
import { loadTab, refreshTab, saveTab, resolveConflict } from "./tabFiles";
import { doesRun } from "./kind";
import { NewFile } from "./NewFile";
import { TabBar } from "./TabBar";
import { type Tab, tabOf, updateTab, useCanvas } from "./tabs";
import { Writing } from "./Writing";
import { Toolbar } from "./Toolbar";
import styles from "./canvas.module.css";

const Editor = lazyPart(() => import("./Editor"));
const Compare = lazyPart(() => import("./Compare"));
const Data = lazyPart(() => import("./Data"));
const DiagramFile = lazyPart(() => import("./DiagramFile"));
const Document = lazyPart(() => import("./Document"));
const Framed = lazyPart(() => import("./Framed"));
const Pdf = lazyPart(() => import("./Pdf"));
const Picture = lazyPart(() => import("./Picture"));
const Runner = lazyPart(() => import("./Runner"));
const ProposalView = lazyPart(() => import("./ProposalView"));
const Slides = lazyPart(() => import("./Slides"));

const LOOK_MS = 30_000; // for files that a background command writes, which the server does not report

export default function Canvas() {
  const tab = useCanvas((state) => state.tabs.find((one) => one.id === state.active));
  const [naming, setNaming] = useState(""); // the tab that is asked for a name
  const draft = useWriting(tab?.id ?? "");
  const proposal = useProposal(tab?.id ?? "");
  useFreshness(tab?.id ?? "");
  useMarked(tab);
  if (!tab) return <Nothing />;
  const keep = () => (tab.file ? void saveTab(tab.id) : setNaming(tab.id));
  return (
    <div className={styles.canvas} onKeyDown={(event) => isSave(event) && (event.preventDefault(), keep())}>
      <TabBar />
      <Toolbar
        key={tab.id}
        tab={tab}
        naming={naming === tab.id}
        name={(asked) => setNaming(asked ? tab.id : "")}
        keep={keep}
      />
      {tab.theirs !== null && <Conflict tab={tab} />}
      {tab.gone && (
        <p className={styles.hint} role="status">
          {tab.name} is no longer in the workspace. Save writes it again.
        </p>
      )}
      {tab.cut && (
        <p className={styles.hint}>
          This file is larger than 10 MB: only the beginning is shown, read-only. Download it for the whole file.
        </p>
      )}
      {proposal?.after === null && (
        <p className={styles.hint} role="status">
          The agent is working on a change…
        </p>
      )}
      <div className={styles.canvasBody} role="tabpanel" id="canvas-body" aria-label={tab.name}>
        <Suspense
          fallback={
            <p className="waiting" role="status">
              Loading…
            </p>
          }
        >
          {draft !== undefined ? (
            <Writing text={draft} />
          ) : proposal?.after != null ? (
            <ProposalView tab={tab} proposal={proposal} />
          ) : (
            <Body key={tab.id} tab={tab} />
          )}
        </Suspense>
      </div>
      {draft === undefined && !proposal && <SelectionBar key={`selection of ${tab.id}`} tab={tab} />}
    </div>
  );
}

const isSave = (event: KeyboardEvent): boolean =>
  (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "s";

function Body({ tab }: { tab: Tab }) {
  if (tab.state === "loading")
    return (
      <p className="waiting" role="status">
        Opening {tab.name}…
      </p>
    );
  if (tab.state === "failed")
    return (
      <p className="empty" role="alert">
        {tab.name} cannot be opened: {tab.problem}{" "}
        <button
          onClick={() => {
            updateTab(tab.id, { state: "loading" });
            void loadTab(tab.id);
          }}
        >
          Try again
        </button>
      </p>
    );
  switch (tab.view) {
    case "grid":
    case "chart":
      return <Data tab={tab} />;
    case "slides":
      return <Slides tab={tab} />;
    case "picture":
      return <Picture tab={tab} />;
    case "pages":
      return <Pdf tab={tab} />;
    case "diff":
      return <Compare tab={tab} />;
    case "preview":
      if (tab.kind === "diagram") return <DiagramFile tab={tab} />;
      if (doesRun(tab.kind)) return <Runner tab={tab} />;
      return tab.kind === "svg" ? <Framed text={tab.text} name={tab.name} /> : <Document tab={tab} />;
    case "none":
      return (
        <p className="empty">{tab.name} is not text, and nothing here can show it. Download it to open it elsewhere.</p>
      );
    default:
      return <Editor tab={tab} />;
  }
}

function Conflict({ tab }: { tab: Tab }) {
  return (
    <div className={styles.conflict} role="alert">
      <span>{tab.name} was changed elsewhere while you changed it here.</span>
      <button onClick={() => updateTab(tab.id, { view: "diff" })}>Compare</button>
      <button onClick={() => resolveConflict(tab.id, "theirs")}>Use the file’s version</button>
      <button onClick={() => resolveConflict(tab.id, "mine")}>Keep my version</button>
    </div>
  );
}

function Nothing() {
  return (
    <div className={styles.nothing}>
      <p>Files that the agent writes open here: code, tables, documents, slides, web pages and images.</p>
      <p>
        <button onClick={() => showPanel("files")}>Open a file</button>
      </p>
      <NewFile />
    </div>
  );
}

/** Note the text that is selected in a document; the editor notes its own. */
function useMarked(tab: Tab | undefined): void {
  const [id, text, view] = [tab?.id ?? "", tab?.text ?? "", tab?.view];
  useEffect(() => {
    if (view !== "preview") return;
    const look = () => {
      const chosen = getSelection();
      const inside = document.getElementById("canvas-body")?.contains(chosen?.anchorNode ?? null);
      if (document.activeElement instanceof HTMLInputElement) return; // of the question about it
      const marked = inside ? String(chosen) : "";
      setSelected(marked.trim() ? { tab: id, text: marked, from: findOnce(text, marked) } : null);
    };
    document.addEventListener("selectionchange", look);
    return () => document.removeEventListener("selectionchange", look);
  }, [id, text, view]);
  useEffect(() => () => setSelected(null), [id, view]);
}

/** Keep the active file in sync with the server. */
function useFreshness(id: string): void {
  useEffect(() => {
    if (!id) return;
    let run = openConversation(app.get()).run;
    const look = () => {
      if (tabOf(id)?.state === "ready" && document.visibilityState === "visible") void refreshTab(id);
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    const changed = onFileChange(tabOf(id)?.file?.agent ?? "", look);
    addEventListener("visibilitychange", look);
    const ended = app.subscribe(() => {
      const now = openConversation(app.get()).run;
      if (run && !now) void refreshTab(id, true);
      run = now;
    });
    return () => {
      clearInterval(timer);
      changed();
      removeEventListener("visibilitychange", look);
      ended();
    };
  }, [id]);
}
