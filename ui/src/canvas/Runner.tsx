/** A page that runs in a frame without origin and network, with its console below. */

import { useCallback, useEffect, useRef, useState } from "react";

import { serverUrl } from "../api/http";
import { app, notify } from "../state/app";
import { sendMessage } from "../state/talk";
import { otherAgent } from "../state/threads";
import { buildProgram } from "./program";
import { type Entry, fixRequest, MOST_ENTRIES, readMessage } from "./runMessages";
import { saveTab } from "./tabFiles";
import { isChanged, type Tab } from "./tabs";
import { RunConsole } from "./RunConsole";
import styles from "./run.module.css";

const SETTLE_MS = 600; // a change runs once the typing pauses
const SILENT_MS = 6_000; // a page that is alive reports each second
const MOST_MESSAGES = 2_000; // of one page in two seconds
const RUNS = "wick-runs"; // in the session storage: the page that runs, and so the one that has blocked the window

type Status = "starting" | "running" | "silent" | "stopped";

export default function Runner({ tab }: { tab: Tab }) {
  const text = useSettled(tab.text);
  const [round, setRound] = useState(0);
  const [entries, setEntries] = useState<Entry[]>([]);
  const path = tab.file?.path ?? tab.name;
  const [status, setStatus] = useState<Status>(() => (sessionStorage.getItem(RUNS) === path ? "stopped" : "starting"));
  const note = useCallback((more: Entry[]) => setEntries((old) => [...old, ...more].slice(-MOST_ENTRIES)), []);
  const restart = () => {
    setEntries([]);
    setStatus("starting");
    setRound(round + 1);
  };
  const fix = async () => {
    if (otherAgent(app.get())) return notify("Continue the thread with its own agent, or start a new one.", "error");
    if (tab.file && isChanged(tab) && !(await saveTab(tab.id))) return; // the agent reads the file
    await sendMessage({ role: "user", content: fixRequest(path, entries) });
  };
  return (
    <div className={styles.runner}>
      {status === "silent" && (
        <p className={styles.warning} role="alert">
          The page does not respond. <button onClick={() => setStatus("stopped")}>Stop it</button>
        </p>
      )}
      {status === "stopped" ? (
        <p className="empty">The page was stopped.</p>
      ) : (
        <Frame
          key={`${round} ${text}`}
          name={tab.name}
          path={path}
          text={text}
          note={note}
          clear={() => setEntries([])}
          setStatus={setStatus}
        />
      )}
      <RunConsole entries={entries} clear={() => setEntries([])} restart={restart} fix={() => void fix()} />
    </div>
  );
}

interface FrameProps {
  name: string;
  path: string;
  text: string;
  note: (more: Entry[]) => void;
  clear: () => void;
  setStatus: (status: Status) => void;
}

function Frame({ name, path, text, note, clear, setStatus }: FrameProps) {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    clear();
    setStatus("starting");
    let [sent, seen, count] = [false, Date.now(), 0];
    const start = async () => {
      try {
        const program = await buildProgram(name, text);
        sessionStorage.setItem(RUNS, path);
        frame.current?.contentWindow?.postMessage({ wick: "run", ...program }, "*"); // its origin is opaque
        setStatus("running");
      } catch (error) {
        note([{ level: "error", text: error instanceof Error ? error.message : String(error) }]);
      }
    };
    const receive = (event: MessageEvent) => {
      if (!event.source || event.source !== frame.current?.contentWindow) return;
      if (++count > MOST_MESSAGES) return setStatus("stopped");
      const message = readMessage(event.data);
      if (!message) return;
      seen = Date.now();
      if (message.kind === "console") note(message.entries);
      if (message.kind !== "ready" || sent) return;
      sent = true;
      void start();
    };
    const watch = setInterval(() => {
      count = 0;
      if (sent && document.visibilityState === "visible")
        setStatus(Date.now() - seen > SILENT_MS ? "silent" : "running");
    }, 2_000);
    const leave = () => sessionStorage.removeItem(RUNS); // not called if the page has blocked the window
    addEventListener("message", receive);
    addEventListener("pagehide", leave);
    return () => {
      leave();
      removeEventListener("pagehide", leave);
      clearInterval(watch);
      removeEventListener("message", receive);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a frame runs one text; its key changes with it
  }, []);
  return (
    <iframe
      ref={frame}
      className={styles.frame}
      src={serverUrl("/canvas/frame")}
      sandbox="allow-scripts"
      allow=""
      title={`Preview of ${name}`}
      referrerPolicy="no-referrer"
    />
  );
}

/** A text once it has not changed for a moment. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
