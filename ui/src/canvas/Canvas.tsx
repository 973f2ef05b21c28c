/** The canvas: what is open, and the one that is looked at. */

import "./canvas.css";

import { lazy, Suspense, useEffect } from "react";

import { app, conversation, patch } from "../state/app";
import { NewFile } from "./NewFile";
import { TabBar } from "./TabBar";
import { canvas, isChanged, load, refresh, settle, type Tab, update, useCanvas } from "./tabs";
import { Toolbar } from "./Toolbar";

const Editor = lazy(() => import("./Editor"));
const Compare = lazy(() => import("./Compare"));
const Data = lazy(() => import("./Data"));
const Document = lazy(() => import("./Document"));
const Framed = lazy(() => import("./Framed"));
const Pdf = lazy(() => import("./Pdf"));
const Picture = lazy(() => import("./Picture"));
const Slides = lazy(() => import("./Slides"));

const LOOK_MS = 3_000;
const LOOK_CHARS = 300_000; // what is larger is read again only when there is a reason to

export default function Canvas() {
  const tab = useCanvas((state) => state.tabs.find((one) => one.id === state.active));
  useFreshness(tab?.id ?? "");
  useWarning();
  if (!tab) return <Nothing />;
  return (
    <div className="canvas">
      <TabBar />
      <Toolbar tab={tab} />
      {tab.theirs !== null && <Conflict tab={tab} />}
      {tab.gone && <p className="hint" role="status">{tab.name} is no longer in the workspace. Save writes it again.</p>}
      {tab.cut && <p className="hint">This file is larger than 10 MB: you see its beginning, and it cannot be changed here. Download it to have all of it.</p>}
      <div className="canvas-body" role="tabpanel" id="canvas-body" aria-label={tab.name}>
        <Suspense fallback={<p className="waiting" role="status">Loading…</p>}><Body key={tab.id} tab={tab} /></Suspense>
      </div>
    </div>
  );
}

function Body({ tab }: { tab: Tab }) {
  if (tab.state === "loading") return <p className="waiting" role="status">Opening {tab.name}…</p>;
  if (tab.state === "failed") return <p className="empty" role="alert">{tab.name} cannot be opened: {tab.problem} <button onClick={() => { update(tab.id, { state: "loading" }); void load(tab.id); }}>Try again</button></p>;
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
      return tab.kind === "html" || tab.kind === "svg" ? <Framed text={tab.text} name={tab.name} svg={tab.kind === "svg"} /> : <Document tab={tab} />;
    case "none":
      return <p className="empty">{tab.name} is not text, and nothing here can show it. Download it to open it elsewhere.</p>;
    default:
      return <Editor tab={tab} />;
  }
}

function Conflict({ tab }: { tab: Tab }) {
  return (
    <div className="conflict" role="alert">
      <span>{tab.name} was changed elsewhere while you changed it here.</span>
      <button onClick={() => update(tab.id, { view: "diff" })}>Compare</button>
      <button onClick={() => settle(tab.id, "theirs")}>Take theirs</button>
      <button onClick={() => settle(tab.id, "mine")}>Keep mine</button>
    </div>
  );
}

function Nothing() {
  return (
    <div className="nothing">
      <p>What the agent writes opens here: code, tables, documents, slides, pages and pictures.</p>
      <p><button onClick={() => patch({ panel: "files" })}>Open a file</button></p>
      <NewFile />
    </div>
  );
}

/** The file that is looked at is as it is on the server, whoever changes it. */
function useFreshness(id: string): void {
  useEffect(() => {
    if (!id) return;
    let run = conversation(app.get()).run;
    const look = () => {
      const tab = canvas.get().tabs.find((one) => one.id === id);
      const light = tab?.state === "ready" && tab.file && !tab.bytes && tab.text.length < LOOK_CHARS;
      if (light && document.visibilityState === "visible") void refresh(id);
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    const ended = app.subscribe(() => {
      const now = conversation(app.get()).run;
      if (run && !now) void refresh(id);
      run = now;
    });
    return () => {
      clearInterval(timer);
      ended();
    };
  }, [id]);
}

/** Nobody leaves the page without being asked about what was not saved. */
function useWarning(): void {
  useEffect(() => {
    const ask = (event: BeforeUnloadEvent) => {
      if (canvas.get().tabs.some((tab) => tab.file && isChanged(tab))) event.preventDefault();
    };
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, []);
}
