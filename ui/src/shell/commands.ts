/** What can be done from anywhere, as commands. */

import { useEffect, useMemo, useRef } from "react";

import type { AgentSummary, Thread } from "../api";
import { move } from "../chat/moving";
import { app, conversation, type Panel, patch, setTheme, useApp } from "../state/app";
import { type Command, pressed } from "../state/commands";
import { signOut } from "../state/session";
import { stop } from "../state/talk";
import { chooseAgent, newThread, openThread } from "../state/threads";

export function useCommands(panels: { id: Panel; title: string }[]): Command[] {
  const threads = useApp((state) => state.threads);
  const agents = useApp((state) => state.agents);
  return useMemo(() => [...fixed(panels), ...agents.map(toAgent), ...threads.slice(0, 50).map(toThread)], [panels, agents, threads]);
}

const toAgent = (one: AgentSummary): Command => ({ id: `agent-${one.agent_id}`, title: `Switch to ${one.name}`, group: "Agents", run: () => chooseAgent(one.agent_id) });
const toThread = (one: Thread): Command => ({ id: `thread-${one.id}`, title: one.title || "Untitled", group: "Threads", run: () => void openThread(one.id) });

const running = () => Boolean(conversation(app.get()).run);
const asked = () => app.get().approvals.some((one) => one.thread_id === app.get().thread);

function fixed(panels: { id: Panel; title: string }[]): Command[] {
  return [
    { id: "palette", title: "All commands", group: "Help", keys: "mod+k", run: () => patch({ overlay: "palette" }) },
    { id: "shortcuts", title: "Keyboard shortcuts", group: "Help", keys: "?", run: () => patch({ overlay: "shortcuts" }) },
    { id: "new", title: "New thread", group: "Threads", keys: "n", run: () => (newThread(), focus("message")) },
    { id: "search", title: "Search threads", group: "Threads", keys: "/", run: () => (patch({ drawer: true }), focus("search")) },
    { id: "message", title: "Write a message", group: "Chat", keys: "m", run: () => focus("message") },
    { id: "next", title: "Next message", group: "Chat", keys: "j", run: () => move(1) },
    { id: "previous", title: "Previous message", group: "Chat", keys: "k", run: () => move(-1) },
    { id: "question", title: "Go to the question", group: "Chat", keys: "a", run: () => focus("question"), enabled: asked },
    { id: "stop", title: "Stop the run", group: "Chat", keys: "mod+.", run: () => void stop(), enabled: running },
    ...panels.map(({ id, title }, at) => ({ id: `panel-${id}`, title: `Show ${title.toLowerCase()}`, group: "Panels", keys: `alt+${at + 1}`, run: () => patch({ panel: app.get().panel === id ? null : id }) })),
    { id: "close", title: "Close the panel", group: "Panels", keys: "escape", run: () => (patch({ panel: null, drawer: false }), focus("message")), enabled: () => app.get().panel !== null || app.get().drawer },
    ...(["light", "dark", "system"] as const).map((theme) => ({ id: `theme-${theme}`, title: `Theme: ${theme}`, group: "Theme", run: () => setTheme(theme) })),
    { id: "sign-out", title: "Sign out", group: "Account", run: () => void signOut() },
  ];
}

function focus(id: string): void {
  requestAnimationFrame(() => document.getElementById(id)?.focus());
}

export function useShortcuts(commands: Command[]): void {
  const held = useRef("");
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.defaultPrevented || app.get().overlay !== null || document.querySelector("dialog[open]")) return;
      const found = pressed(commands, event, held.current);
      held.current = found.held;
      if (!found.command) return;
      event.preventDefault();
      found.command.run();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [commands]);
}
