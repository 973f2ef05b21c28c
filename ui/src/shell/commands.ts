/** What can be done from anywhere, as commands. */

import { useEffect, useMemo, useRef } from "react";

import { app, conversation, newThread, openThread, type Panel, patch, setTheme, signOut, stop, useApp } from "../state/app";
import { type Command, pressed } from "../state/commands";

export function useCommands(panels: { id: Panel; title: string }[]): Command[] {
  const threads = useApp((state) => state.threads);
  return useMemo(() => [...fixed(panels), ...threads.slice(0, 50).map((one) => ({ id: `thread-${one.id}`, title: one.title || "Untitled", group: "Threads", run: () => void openThread(one.id) }))], [threads]);
}

function fixed(panels: { id: Panel; title: string }[]): Command[] {
  const running = () => Boolean(conversation(app.get()).run);
  return [
    { id: "palette", title: "All commands", group: "Help", keys: "mod+k", run: () => patch({ overlay: "palette" }) },
    { id: "shortcuts", title: "Keyboard shortcuts", group: "Help", keys: "?", run: () => patch({ overlay: "shortcuts" }) },
    { id: "new", title: "New thread", group: "Threads", keys: "n", run: newThread },
    { id: "search", title: "Search threads", group: "Threads", keys: "/", run: () => focus("search") },
    { id: "message", title: "Write a message", group: "Chat", keys: "m", run: () => focus("message") },
    { id: "stop", title: "Stop the run", group: "Chat", keys: "mod+.", run: () => void stop(), enabled: running },
    ...panels.map(({ id, title }, at) => ({ id: `panel-${id}`, title: `Show ${title.toLowerCase()}`, group: "Panels", keys: `alt+${at + 1}`, run: () => patch({ panel: app.get().panel === id ? null : id }) })),
    { id: "close", title: "Close the panel", group: "Panels", keys: "escape", run: () => patch({ panel: null }), enabled: () => app.get().panel !== null && app.get().overlay === null },
    ...(["light", "dark", "system"] as const).map((theme) => ({ id: `theme-${theme}`, title: `Theme: ${theme}`, group: "Look", run: () => setTheme(theme) })),
    { id: "sign-out", title: "Sign out", group: "You", run: () => void signOut() },
  ];
}

function focus(id: string): void {
  document.getElementById(id)?.focus();
}

export function useShortcuts(commands: Command[]): void {
  const held = useRef("");
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (app.get().overlay !== null || document.querySelector("dialog[open]")) return;
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
