/** What is asked of a replay: which guards, and which threads. */

import type { ReplayRequest } from "../../api";

export const GUARDS = [
  { id: "now", title: "The agent as it is now", says: "Finds out what has changed since: other rules, other guards, other tools.", hooks: {} },
  { id: "ask", title: "Ask about everything", says: "Only what a rule or a grant allows is not asked about.", hooks: { permissions: { mode: "default" } } },
  { id: "edits", title: "Accept edits only", says: "Files are read and written; all else is asked about.", hooks: { permissions: { mode: "acceptEdits" } } },
  { id: "plan", title: "Plan", says: "Only what reads is allowed.", hooks: { permissions: { mode: "plan" } } },
  { id: "shell", title: "The ready set “shell”", says: "Denies commands that would destroy a machine.", hooks: { permissions: { policy: "shell" } } },
  { id: "none", title: "Without permissions", says: "Shows what only the permissions have held back.", hooks: { permissions: false } },
] as const satisfies { id: string; title: string; says: string; hooks: ReplayRequest["hooks"] }[];

export type Guards = (typeof GUARDS)[number]["id"];

export interface Asked {
  guards: Guards;
  deny: string; // rules, one a line, and so are the next ones
  ask: string;
  allow: string;
  thread: string; // empty for all of them
}

export const NOTHING: Asked = { guards: "now", deny: "", ask: "", allow: "", thread: "" };

export function request(agent: string, asked: Asked): ReplayRequest {
  const hooks = GUARDS.find((one) => one.id === asked.guards)!.hooks;
  const rules = { deny: lines(asked.deny), ask: lines(asked.ask), allow: lines(asked.allow) };
  return { agent_id: agent, thread_ids: asked.thread ? [asked.thread] : null, hooks, rules };
}

export const lines = (text: string): string[] => text.split("\n").map((line) => line.trim()).filter(Boolean);

export const hasRules = (asked: Asked): boolean => [asked.deny, asked.ask, asked.allow].some((text) => lines(text).length > 0);
