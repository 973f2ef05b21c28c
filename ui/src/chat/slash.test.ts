import { expect, it } from "vitest";

import { matchSkills, typedSlash, expandSkill } from "./slash";

const skill = (name: string, enabled = true) => ({ name, enabled, description: "", path: "" });
const SKILLS = [skill("summarization"), skill("slides"), skill("research", false)];

it("notices a slash only where a message begins", () => {
  expect(["/", "/sl", "/csv-analyzer", "a /sl", "/sl x", ""].map(typedSlash)).toEqual([
    "",
    "sl",
    "csv-analyzer",
    null,
    null,
    null,
  ]);
});

it("offers the skills that are on, those that begin so first", () => {
  expect(matchSkills(SKILLS, "").map((one) => one.name)).toEqual(["slides", "summarization"]);
  expect(matchSkills(SKILLS, "sum").map((one) => one.name)).toEqual(["summarization"]);
  expect(matchSkills(SKILLS, "res")).toEqual([]);
});

it("makes a sentence of a skill's name, and leaves all else as it is", () => {
  expect(expandSkill("/slides about tea\nand more", SKILLS)).toBe("Use the skill slides: about tea\nand more");
  expect(expandSkill("/slides", SKILLS)).toBe("Use the skill slides.");
  for (const text of ["/usr/bin is a folder", "/research this", "/unknown x", "plain"])
    expect(expandSkill(text, SKILLS)).toBe(text);
});
