/** The rules of an agent as they are said to the server. */

import type { Permissions } from "../../api";

export const KINDS = ["deny", "ask", "allow"] as const;
export type Kind = (typeof KINDS)[number];
type Mode = NonNullable<Permissions["mode"]>;
type Spelled = string | { rule: string; message: string };

export type RuleSet = Record<Kind, Spelled[]> & { mode: Mode };

export const MODES: { id: Mode; title: string; says: string }[] = [
  { id: "default", title: "Ask", says: "What no rule allows is asked about." },
  { id: "acceptEdits", title: "Accept edits", says: "Files of the workspace are read and written; all else is asked about." },
  { id: "plan", title: "Plan", says: "Nothing is changed: only what reads may be used." },
  { id: "dontAsk", title: "Do not ask", says: "What would be asked about is denied." },
  { id: "bypassPermissions", title: "Allow", says: "What no rule denies or asks about is allowed. An operator chooses this." },
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
