/** Slash commands: `/slides about tea` asks for a skill by its name. */

import type { Skill } from "../api";

/** The text after a slash at the very beginning, or null. */
export function typedSlash(text: string): string | null {
  return /^\/([\w.-]*)$/.exec(text)?.[1] ?? null;
}

export function matchSkills(skills: Skill[], typed: string): Skill[] {
  const able = skills.filter((one) => one.enabled && one.name.toLowerCase().includes(typed.toLowerCase()));
  return able
    .sort((a, b) => Number(b.name.startsWith(typed)) - Number(a.name.startsWith(typed)) || a.name.localeCompare(b.name))
    .slice(0, 8);
}

/** A message as the agent reads it: a slash and the name of a skill it has become a sentence. */
export function expandSkill(text: string, skills: Skill[]): string {
  const [, name, rest = ""] = /^\/([\w.-]+)(?:\s+([\s\S]*))?$/.exec(text.trim()) ?? [];
  if (!name || !skills.some((one) => one.enabled && one.name === name)) return text;
  return rest.trim() ? `Use the skill ${name}: ${rest.trim()}` : `Use the skill ${name}.`;
}
