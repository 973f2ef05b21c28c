/** A replay request: guards and threads. */

import type { ReplayRequest } from "../../api";

export const GUARDS = [
  {
    id: "now",
    title: "Current configuration",
    says: "Shows the effect of changes to rules, guards and tools since the runs.",
    hooks: {},
  },
  {
    id: "ask",
    title: "Ask about everything",
    says: "Tool uses need approval unless a rule or grant allows them.",
    hooks: { permissions: { mode: "default" } },
  },
  {
    id: "edits",
    title: "Accept edits only",
    says: "Workspace files can be read and written; other tool uses need approval.",
    hooks: { permissions: { mode: "acceptEdits" } },
  },
  { id: "plan", title: "Plan", says: "Only read-only tools are allowed.", hooks: { permissions: { mode: "plan" } } },
  {
    id: "shell",
    title: "Policy “shell”",
    says: "Denies destructive shell commands.",
    hooks: { permissions: { policy: "shell" } },
  },
  {
    id: "none",
    title: "Without permissions",
    says: "Shows tool uses that only the permissions restricted.",
    hooks: { permissions: false },
  },
] as const satisfies { id: string; title: string; says: string; hooks: ReplayRequest["hooks"] }[];

export type Guards = (typeof GUARDS)[number]["id"];

export interface ReplayForm {
  guards: Guards;
  deny: string; // rules, one a line, and so are the next ones
  ask: string;
  allow: string;
  thread: string; // empty for all of them
}

export const NOTHING: ReplayForm = { guards: "now", deny: "", ask: "", allow: "", thread: "" };

export function replayRequest(agent: string, form: ReplayForm): ReplayRequest {
  const hooks = GUARDS.find((one) => one.id === form.guards)!.hooks;
  const rules = { deny: splitLines(form.deny), ask: splitLines(form.ask), allow: splitLines(form.allow) };
  return { agent_id: agent, thread_ids: form.thread ? [form.thread] : null, hooks, rules };
}

export const splitLines = (text: string): string[] =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

export const hasRules = (form: ReplayForm): boolean =>
  [form.deny, form.ask, form.allow].some((text) => splitLines(text).length > 0);
