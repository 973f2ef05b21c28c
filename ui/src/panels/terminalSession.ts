/** A shell behind a WebSocket, and the screen it prints on. It goes on when the panel is closed. */

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

import * as api from "../api";
import { path, query } from "../api/http";
import { app } from "../state/app";

export type Status = "connecting" | "open" | "lost" | "ended" | "refused";

const CONTROL = "\x01";
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
const MOST_TRIES = 8;

/** How long to wait before the next try; nothing when it is time to give up. */
export function waitFor(tries: number): number | null {
  return tries > MOST_TRIES ? null : Math.min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT);
}

export class Session {
  readonly screen = new Terminal({ cursorBlink: true, fontSize: 13, fontFamily: 'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, monospace', scrollback: 5_000, allowProposedApi: false });
  readonly listeners = new Set<() => void>();
  status: Status = "connecting";
  problem = "";
  private readonly fit = new FitAddon();
  private socket: WebSocket | null = null;
  private tries = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private over = false;
  private where = ""; // the backend that the shell runs on

  constructor(readonly agent: string) {
    this.screen.loadAddon(this.fit);
    this.screen.onData((text) => this.type(text));
    this.screen.onBinary((text) => this.send(Uint8Array.from(text, (sign) => sign.charCodeAt(0))));
    this.screen.onResize(({ rows, cols }) => this.send(`${CONTROL}${JSON.stringify({ type: "resize", rows, columns: cols })}`));
  }

  /** Show the screen in a place of the page; the same screen is moved, so nothing of it is lost. */
  show(place: HTMLElement): void {
    if (this.screen.element) place.append(this.screen.element);
    else this.screen.open(place);
    this.refit();
    if (!this.socket) void this.connect();
    else void this.follow();
  }

  /** The agent may work elsewhere by now: its terminal goes along. */
  private async follow(): Promise<void> {
    const now = await backendOf(this.agent);
    if (now && this.where && now !== this.where) this.restart();
  }

  refit(): void {
    if (this.screen.element?.isConnected) this.fit.fit();
  }

  /** A new shell, whatever became of the old one. */
  restart(): void {
    this.hangUp();
    this.screen.reset();
    this.tries = 0;
    void this.connect();
  }

  close(): void {
    this.over = true;
    this.hangUp();
    this.screen.dispose();
  }

  private hangUp(): void {
    clearTimeout(this.timer);
    const old = this.socket;
    this.socket = null;
    old?.close();
  }

  private async connect(): Promise<void> {
    this.say("connecting");
    try {
      this.where = await backendOf(this.agent);
      const { ticket } = await api.auth.ticket();
      if (this.over) return;
      const size = query({ ticket, rows: this.screen.rows, columns: this.screen.cols });
      const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${path`/agents/${this.agent}/terminal`}${size}`);
      this.listen(socket);
    } catch {
      this.retry();
    }
  }

  private listen(socket: WebSocket): void {
    let opened = false;
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      opened = true;
      if (this.tries) this.screen.write("\r\n\x1b[2m— connected again, with a new shell —\x1b[0m\r\n");
      this.tries = 0;
      this.say("open");
      this.refit();
    };
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => this.screen.write(typeof data === "string" ? data : new Uint8Array(data));
    socket.onclose = ({ code, reason }) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (code === 1000) this.ended(reason);
      else if (opened) this.retry();
      else void this.explain();
    };
  }

  private ended(reason: string): void {
    this.screen.write(`\r\n\x1b[2m— the shell has ended${reason ? `: ${reason}` : ""}; press Enter for a new one —\x1b[0m\r\n`);
    this.say("ended");
  }

  /** A browser does not say why a socket was refused; what the server says about the backend may. */
  private async explain(): Promise<void> {
    const backend = await api.agents.backend(this.agent).catch(() => undefined);
    if (backend === undefined) return this.retry();
    if (backend === null || backend.type === "state") return this.say("refused", "This agent has no workspace with commands. Switch its backend in the Agent panel.");
    if (backend.status === "error") return this.say("refused", `Its container cannot be reached: ${backend.reason}. Look at it in the Agent panel.`);
    const confined = backend.protection.level !== "none" && !backend.protection.asks;
    if (!confined && app.get().me?.role === "user") return this.say("refused", "Nothing confines commands here, so a terminal takes an operator. Ask one, or switch the backend to Docker.");
    this.retry();
  }

  private retry(): void {
    if (this.over) return;
    const wait = waitFor(++this.tries);
    if (wait === null) return this.say("refused", "The terminal cannot be reached. Is the server running, and are there too many terminals open?");
    this.say("lost");
    this.timer = setTimeout(() => void this.connect(), wait);
  }

  private type(text: string): void {
    if (this.status === "ended" && text.includes("\r")) this.restart();
    else this.send(text);
  }

  private send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  private say(status: Status, problem = ""): void {
    [this.status, this.problem] = [status, problem];
    for (const listener of [...this.listeners]) listener();
  }
}

/** What tells one backend from another; nothing where the server does not say. */
async function backendOf(agent: string): Promise<string> {
  const backend = await api.agents.backend(agent).catch(() => null);
  return backend ? JSON.stringify([backend.type, backend.sandbox_url, backend.workdir]) : "";
}

const SESSIONS = new Map<string, Session>(); // by agent

export function sessionOf(agent: string): Session {
  const session = SESSIONS.get(agent) ?? new Session(agent);
  SESSIONS.set(agent, session);
  return session;
}

/** Whoever signs in next does not get the shell of the one before. */
app.subscribe(() => {
  if (app.get().me !== null || !SESSIONS.size) return;
  for (const session of SESSIONS.values()) session.close();
  SESSIONS.clear();
});
