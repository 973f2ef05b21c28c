/** A shell over a WebSocket, with its screen. It survives closing the panel. */

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

import * as api from "../../api";
import { ApiError, buildPath, buildQuery, serverUrl } from "../../api/http";
import { app, patchApp } from "../../state/app";

export type Status = "connecting" | "open" | "lost" | "ended" | "refused";

const CONTROL = "\x01";
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
const MOST_REFUSALS = 6;
const TAKEN_OVER = 4001; // by another window, which has a copy of this one's session

/** The delay before the next attempt. */
export const waitFor = (tries: number): number => Math.min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT);

export class Session {
  readonly screen = new Terminal({
    cursorBlink: true,
    fontSize: 13,
    fontFamily: 'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, monospace',
    scrollback: 5_000,
    allowProposedApi: false,
  });
  readonly listeners = new Set<() => void>();
  status: Status = "connecting";
  problem = "";
  private readonly fit = new FitAddon();
  private socket: WebSocket | null = null;
  private turn = 0; // the current attempt: results of earlier ones are ignored
  private tries = 0; // since there was a shell
  private refusals = 0; // by a server that answers
  private timer: ReturnType<typeof setTimeout> | undefined;
  private where = ""; // the backend that the shell runs on

  private readonly key: string; // of the shell's name in the storage of this window

  constructor(readonly agent: string) {
    this.key = `wick-shell ${agent}`;
    this.screen.loadAddon(this.fit);
    this.screen.onData((text) => this.type(text));
    this.screen.onBinary((text) => this.send(Uint8Array.from(text, (sign) => sign.charCodeAt(0))));
    this.screen.onResize(() => this.sendSize());
  }

  /** Show the screen in a place of the page; the same screen is moved, so nothing of it is lost. */
  show(place: HTMLElement): void {
    if (this.screen.element) place.append(this.screen.element);
    else this.screen.open(place);
    this.refit();
    if (this.status === "open") void this.follow();
    else if (!this.turn || this.status !== "connecting") this.again();
  }

  /** The agent may have another backend by now: its terminal follows. */
  private async follow(): Promise<void> {
    const now = await api.agents.backend(this.agent).catch(() => null);
    if (now && backendKey(now) !== this.where) this.restart();
  }

  refit(): void {
    if (this.screen.element?.isConnected) this.fit.fit();
  }

  /** A new shell on an empty screen, whatever became of the old one. */
  restart(): void {
    sessionStorage.removeItem(this.key);
    this.screen.reset();
    this.tries = 0;
    this.again();
  }

  close(): void {
    this.hangUp();
    this.screen.dispose();
  }

  private again(): void {
    this.hangUp();
    this.refusals = 0;
    void this.connect();
  }

  private hangUp(): void {
    this.turn++;
    clearTimeout(this.timer);
    this.socket?.close(1000); // with another code the shell stays for a while
    this.socket = null;
  }

  private async connect(): Promise<void> {
    const turn = ++this.turn;
    this.say("connecting");
    try {
      const backend = await api.agents.backend(this.agent);
      const { ticket } = await api.auth.ticket();
      if (turn !== this.turn) return;
      const why = refusalReason(backend);
      if (why) return this.say("refused", why);
      this.where = backendKey(backend);
      const size = buildQuery({ ticket, session: this.name(), rows: this.screen.rows, columns: this.screen.cols });
      this.listen(
        new WebSocket(
          `${location.origin.replace(/^http/, "ws")}${serverUrl(buildPath`/agents/${this.agent}/terminal`)}${size}`,
        ),
      );
    } catch (error) {
      if (turn !== this.turn) return;
      if (error instanceof ApiError && error.status === 401) return (this.say("lost"), patchApp({ me: null })); // it continues after the next sign-in
      this.refusals = 0; // not refused: the server is away
      this.retry();
    }
  }

  private listen(socket: WebSocket): void {
    let opened = false;
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      if (this.socket !== socket) return;
      opened = true;
      this.refusals = 0;
      this.say("open");
      this.refit();
      this.sendSize(); // it may have become another meanwhile
    };
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (this.socket !== socket) return;
      if (typeof data === "string") this.greet(JSON.parse(data) as { kept: boolean });
      else this.screen.write(new Uint8Array(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (code === TAKEN_OVER) this.say("refused", "This shell is open in another window.");
      else if (code === 1000) this.ended(reason);
      else if (opened) this.retry();
      else this.denied();
    };
  }

  /** A shell that is still running sends its recent output again. */
  private greet({ kept }: { kept: boolean }): void {
    if (kept) this.screen.reset();
    else if (this.tries) this.screen.write("\r\n\x1b[2m— reconnected, with a new shell —\x1b[0m\r\n");
    this.tries = 0;
  }

  /** The name of the shell, which a reloaded page still knows. */
  private name(): string {
    const known = sessionStorage.getItem(this.key);
    if (known) return known;
    const made = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) =>
      byte.toString(16).padStart(2, "0"),
    ).join("");
    sessionStorage.setItem(this.key, made);
    return made;
  }

  private ended(reason: string): void {
    sessionStorage.removeItem(this.key);
    this.screen.write(
      `\r\n\x1b[2m— shell exited${reason ? `: ${reason}` : ""}; press Enter for a new one —\x1b[0m\r\n`,
    );
    this.say("ended");
  }

  /** The socket was refused; a browser does not report the reason. */
  private denied(): void {
    if (++this.refusals > MOST_REFUSALS)
      this.say(
        "refused",
        "The server refused the terminal. There may be too many open terminals: close some, then connect again.",
      );
    else this.retry();
  }

  /** Try again, first soon and then later, for as long as the page is there. */
  private retry(): void {
    this.say("lost");
    this.timer = setTimeout(() => void this.connect(), waitFor(++this.tries));
  }

  private type(text: string): void {
    if (this.status === "ended" && text.includes("\r")) this.again();
    else this.send(text);
  }

  private sendSize(): void {
    this.send(`${CONTROL}${JSON.stringify({ type: "resize", rows: this.screen.rows, columns: this.screen.cols })}`);
  }

  private send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  private say(status: Status, problem = ""): void {
    [this.status, this.problem] = [status, problem];
    for (const listener of [...this.listeners]) listener();
  }
}

/** The reason why a backend has no terminal for this user; empty if it should have one. */
function refusalReason(backend: api.BackendInfo | null): string {
  if (backend === null || backend.type === "state")
    return "The backend of this agent does not run commands. Change it in the Agent panel.";
  if (backend.status === "error") return `The container cannot be reached: ${backend.reason}. See the Agent panel.`;
  const confined = backend.protection.level !== "none" && !backend.protection.asks;
  return !confined && app.get().me?.role === "user"
    ? "Commands are not sandboxed here, so only operators can open a terminal. Ask one, or switch the backend to Docker."
    : "";
}

/** The identity of a backend. */
const backendKey = (backend: api.BackendInfo | null): string =>
  JSON.stringify(backend && [backend.type, backend.sandbox_url, backend.workdir]);

const SESSIONS = new Map<string, Session>(); // by agent

export function sessionOf(agent: string): Session {
  const session = SESSIONS.get(agent) ?? new Session(agent);
  SESSIONS.set(agent, session);
  return session;
}

/** Another user does not get the shell of the previous one; the same user gets it again. */
app.subscribe(() => {
  if (app.get().me || app.get().agent || !SESSIONS.size) return;
  for (const session of SESSIONS.values()) session.close();
  SESSIONS.clear();
});
