/** Global commands. */

import { useEffect, useMemo, useRef } from "react";

import type { AgentSummary, Thread } from "../api";
import { moveFocus } from "../chat/navigation";
import { app, openConversation, type Panel, patchApp, setTheme, useApp } from "../state/app";
import { type Command, commandForKey } from "../state/commands";
import { closeOnePanel, shownPanels, togglePanel, toggleSidebar } from "../state/layout";
import { canNotify, toggleNotifications } from "../state/notifications";
import { signOut } from "../state/session";
import { stopRun } from "../state/talk";
import { chooseAgent, newThread, openThread } from "../state/threads";

export function useCommands(panels: { id: Panel; title: string }[]): Command[] {
  const threads = useApp((state) => state.threads);
  const agents = useApp((state) => state.agents);
  return useMemo(
    () => [...fixedCommands(panels), ...agents.map(toAgent), ...threads.slice(0, 50).map(toThread)],
    [panels, agents, threads],
  );
}

const toAgent = (one: AgentSummary): Command => ({
  id: `agent-${one.agent_id}`,
  title: `Switch to ${one.name}`,
  group: "Agents",
  run: () => chooseAgent(one.agent_id),
});
const toThread = (one: Thread): Command => ({
  id: `thread-${one.id}`,
  title: one.title || "Untitled",
  group: "Threads",
  run: () => void openThread(one.id),
});

const isRunning = () => Boolean(openConversation(app.get()).run);
const hasQuestion = () => app.get().approvals.some((one) => one.thread_id === app.get().thread);

/** In a panel and in the search field itself, the search of the browser opens. */
const canFind = () =>
  openConversation(app.get()).items.length > 0 && !document.activeElement?.closest("aside, [role=search]");

function fixedCommands(panels: { id: Panel; title: string }[]): Command[] {
  return [
    { id: "palette", title: "All commands", group: "Help", keys: "mod+k", run: () => patchApp({ overlay: "palette" }) },
    {
      id: "shortcuts",
      title: "Keyboard shortcuts",
      group: "Help",
      keys: "?",
      run: () => patchApp({ overlay: "shortcuts" }),
    },
    { id: "new", title: "New thread", group: "Threads", keys: "n", run: () => (newThread(), focusElement("message")) },
    {
      id: "search",
      title: "Search threads",
      group: "Threads",
      keys: "/",
      run: () => (patchApp({ drawer: true, sidebar: true }), focusElement("search")),
    },
    {
      id: "message",
      title: "Write a message",
      group: "Chat",
      keys: "m",
      run: () => (patchApp({ wide: false }), focusElement("message")),
    },
    {
      id: "find",
      title: "Find in this thread",
      group: "Chat",
      keys: "mod+f",
      run: () => patchApp({ finds: true, wide: false }),
      enabled: canFind,
    },
    { id: "next", title: "Next message", group: "Chat", keys: "j", run: () => moveFocus(1) },
    { id: "previous", title: "Previous message", group: "Chat", keys: "k", run: () => moveFocus(-1) },
    {
      id: "question",
      title: "Go to the question",
      group: "Chat",
      keys: "a",
      run: () => (patchApp({ wide: false }), focusElement("question")),
      enabled: hasQuestion,
    },
    { id: "stop", title: "Stop the run", group: "Chat", keys: "mod+.", run: () => void stopRun(), enabled: isRunning },
    ...panels.map(({ id, title }, at) => ({
      id: `panel-${id}`,
      title: `Show ${title.toLowerCase()}`,
      group: "Panels",
      keys: id === "settings" ? "mod+," : `alt+${(at + 1) % 10}`, // the tenth is alt+0
      run: () => togglePanel(id),
    })),
    {
      id: "wide",
      title: "Full width",
      group: "Panels",
      keys: "f",
      run: () => patchApp({ wide: !app.get().wide }),
      enabled: () => shownPanels(app.get()).length > 0,
    },
    { id: "sidebar", title: "Show or hide the threads", group: "Panels", keys: "mod+b", run: toggleSidebar },
    {
      id: "close",
      title: "Close the panel",
      group: "Panels",
      keys: "escape",
      run: () => (closeOnePanel(), patchApp({ drawer: false }), focusElement("message")),
      enabled: () => shownPanels(app.get()).length > 0 || app.get().drawer,
    },
    ...(["light", "dark", "system"] as const).map((theme) => ({
      id: `theme-${theme}`,
      title: `Theme: ${theme}`,
      group: "Theme",
      run: () => setTheme(theme),
    })),
    {
      id: "notifications",
      title: "Desktop notifications: on or off",
      group: "Account",
      run: () => void toggleNotifications(),
      enabled: canNotify,
    },
    { id: "sign-out", title: "Sign out", group: "Account", run: () => void signOut() },
  ];
}

function focusElement(id: string): void {
  requestAnimationFrame(() => document.getElementById(id)?.focus());
}

export function useShortcuts(commands: Command[]): void {
  const held = useRef("");
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.defaultPrevented || app.get().overlay !== null || document.querySelector("dialog[open]")) return;
      const found = commandForKey(commands, event, held.current);
      held.current = found.held;
      if (!found.command) return;
      event.preventDefault();
      found.command.run();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [commands]);
}
