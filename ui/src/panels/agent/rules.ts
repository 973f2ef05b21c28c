/** The rules of an agent as they are said to the server. */

import type { Permissions } from "../../api";

export const KINDS = ["deny", "ask", "allow"] as const;
export type Kind = (typeof KINDS)[number];
type Mode = NonNullable<Permissions["mode"]>;
type Spelled = string | { rule: string; message: string };

export type RuleSet = Record<Kind, Spelled[]> & { mode: Mode };

export const MODES: { id: Mode; title: string; says: string }[] = [
  { id: "default", title: "Ask", says: "Tool uses without an allow rule need approval." },
  { id: "acceptEdits", title: "Accept edits", says: "Workspace files can be read and written; other tool uses need approval." },
  { id: "plan", title: "Plan", says: "Only read-only tools are allowed." },
  { id: "dontAsk", title: "Do not ask", says: "Tool uses that need approval are denied." },
  { id: "bypassPermissions", title: "Allow", says: "Everything is allowed, except by deny and ask rules. Only operators can choose this." },
];

/** What stands there now, without the rules of ready sets: those come with the set. */
export function kept(found: Permissions): RuleSet {
  const of = (type: Kind): Spelled[] => found.rules.filter((rule) => rule.type === type && !rule.policy).map(({ rule, message }) => (message ? { rule, message } : rule));
  return { deny: of("deny"), ask: of("ask"), allow: of("allow"), mode: found.mode ?? "bypassPermissions" }; // who had none is not asked more
}

export function added(rules: RuleSet, type: Kind, rule: string): RuleSet {
  return rules[type].some((one) => text(one) === rule) ? rules : { ...rules, [type]: [...rules[type], rule] };
}

export function removed(rules: RuleSet, type: Kind, rule: string): RuleSet {
  return { ...rules, [type]: rules[type].filter((one) => text(one) !== rule) };
}

const text = (spelled: Spelled): string => (typeof spelled === "string" ? spelled : spelled.rule);
