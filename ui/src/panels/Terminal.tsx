/** A shell on the agent's backend. */

import "@xterm/xterm/css/xterm.css";

import { useEffect, useRef, useSyncExternalStore } from "react";

import { useApp } from "../state/app";
import { type Session, sessionOf, type Status } from "./terminal/session";
import styles from "./terminal/terminal.module.css";

const WORDS: Record<Status, string> = {
  connecting: "Connecting…",
  open: "Connected",
  lost: "Connection lost; reconnecting…",
  ended: "Shell exited",
  refused: "Not connected",
};

export default function Terminal() {
  const agent = useApp((state) => state.agent);
  return agent ? (
    <Shell key={agent} session={sessionOf(agent)} />
  ) : (
    <p className="empty">Choose an agent to open a shell in its workspace.</p>
  );
}

function Shell({ session }: { session: Session }) {
  const status = useSyncExternalStore(
    (listener) => (session.listeners.add(listener), () => session.listeners.delete(listener)),
    () => session.status,
  );
  const place = useRef<HTMLDivElement>(null);
  const again = useRef<HTMLButtonElement>(null);
  useColours(session);
  useEffect(() => {
    const { screen } = session;
    screen.attachCustomKeyEventHandler((event) => !isForThePage(event, again.current));
    session.show(place.current!);
    screen.focus();
    const watch = new ResizeObserver(() => session.refit());
    watch.observe(place.current!);
    return () => watch.disconnect();
  }, [session]);
  return (
    <div className={styles.terminal}>
      <div className={styles.terminalBar}>
        <span className={styles.dot} data-status={status} aria-hidden="true" />
        <small role="status">{WORDS[status]}</small>
        <span className="grow" />
        <label className="plain">
          <input
            type="checkbox"
            defaultChecked={session.screen.options.screenReaderMode ?? false}
            onChange={(event) => {
              session.screen.options.screenReaderMode = event.target.checked;
            }}
          />{" "}
          Screen reader mode
        </label>
        <button
          ref={again}
          onClick={() => {
            session.restart();
            session.screen.focus();
          }}
        >
          {status === "open" ? "New shell" : "Connect"}
        </button>
      </div>
      {status === "refused" && (
        <p className="empty" role="alert">
          {session.problem}
        </p>
      )}
      <div
        className={styles.terminalPlace}
        ref={place}
        role="group"
        aria-label="Terminal (F6 to leave)"
        onKeyDown={(event) => {
          if (!isPanelKey(event.nativeEvent)) event.stopPropagation();
        }}
      />
    </div>
  );
}

/** Alt and a digit choose a panel here as everywhere. */
const isPanelKey = (event: KeyboardEvent): boolean => event.altKey && !event.ctrlKey && /^\d$/.test(event.key);

/** Every key is the shell's but two: F6 leaves the terminal, and those that choose a panel. */
function isForThePage(event: KeyboardEvent, next: HTMLElement | null): boolean {
  if (event.key === "F6" && event.type === "keydown") {
    event.preventDefault();
    next?.focus();
    return true;
  }
  return isPanelKey(event);
}

/** The colours of the page, as a terminal wants them: without variables. */
function useColours(session: Session): void {
  const theme = useApp((state) => state.theme);
  useEffect(() => {
    const paint = () => {
      session.screen.options.theme = terminalColours();
    };
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const frame = requestAnimationFrame(paint); // when the page has its new colours
    dark.addEventListener("change", paint);
    return () => {
      cancelAnimationFrame(frame);
      dark.removeEventListener("change", paint);
    };
  }, [session, theme]);
}

function terminalColours(): Record<string, string> {
  const probe = document.body.appendChild(document.createElement("i"));
  const read = (value: string) => {
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const names = {
    background: "var(--raised)", foreground: "var(--ink)", cursor: "var(--flame)", selectionBackground: "light-dark(#f6dcc2, #55402a)",
    black: "light-dark(#24211d, #2b2d31)", red: "var(--bad)", green: "var(--good)", yellow: "light-dark(#8a6100, #e5c46b)", blue: "var(--link)", magenta: "light-dark(#8a3f86, #d7a1d3)", cyan: "light-dark(#19696f, #7fd0d6)", white: "light-dark(#5f5a52, #d9d5cd)",
    brightBlack: "var(--quiet)", brightRed: "var(--bad)", brightGreen: "var(--good)", brightYellow: "light-dark(#8a6100, #f0d48a)", brightBlue: "var(--link)", brightMagenta: "light-dark(#8a3f86, #e6b9e2)", brightCyan: "light-dark(#19696f, #9be0e5)", brightWhite: "var(--ink)",
  }; // prettier-ignore
  const found = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, read(value)]));
  probe.remove();
  return found;
}
