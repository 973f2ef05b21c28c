/** The rules of an agent in the format of the server. */

import type { Permissions } from "../../api";

export const KINDS = ["deny", "ask", "allow"] as const;
export type Kind = (typeof KINDS)[number];
type Mode = NonNullable<Permissions["mode"]>;
type Spelled = string | { rule: string; message: string };

export type RuleSet = Record<Kind, Spelled[]> & { mode: Mode };

export const MODES: { id: Mode; title: string; says: string }[] = [
  { id: "default", title: "Ask", says: "Tool uses without an allow rule need approval." },
  {
    id: "acceptEdits",
    title: "Accept edits",
    says: "Workspace files can be read and written; other tool uses need approval.",
  },
  { id: "plan", title: "Plan", says: "Only read-only tools are allowed." },
  { id: "dontAsk", title: "Do not ask", says: "Tool uses that need approval are denied." },
  {
    id: "bypassPermissions",
    title: "Allow",
    says: "Everything is allowed, except by deny and ask rules. Only operators can choose this.",
  },
];

/** The current rules without those of presets, which come with the preset. */
export function currentRules(found: Permissions): RuleSet {
  const of = (type: Kind): Spelled[] =>
    found.rules
      .filter((rule) => rule.type === type && !rule.policy)
      .map(({ rule, message }) => (message ? { rule, message } : rule));
  return { deny: of("deny"), ask: of("ask"), allow: of("allow"), mode: found.mode ?? "bypassPermissions" }; // an agent without a mode is not asked more
}

export function withRule(rules: RuleSet, type: Kind, rule: string): RuleSet {
  return rules[type].some((one) => ruleText(one) === rule) ? rules : { ...rules, [type]: [...rules[type], rule] };
}

export function withoutRule(rules: RuleSet, type: Kind, rule: string): RuleSet {
  return { ...rules, [type]: rules[type].filter((one) => ruleText(one) !== rule) };
}

const ruleText = (spelled: Spelled): string => (typeof spelled === "string" ? spelled : spelled.rule);
