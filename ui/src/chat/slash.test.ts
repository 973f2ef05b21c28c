import { expect, it } from "vitest";

import { offered, typedSlash, unslashed } from "./slash";

const skill = (name: string, enabled = true) => ({ name, enabled, description: "", path: "" });
const SKILLS = [skill("summarization"), skill("slides"), skill("research", false)];

it("notices a slash only where a message begins", () => {
  expect(["/", "/sl", "/csv-analyzer", "a /sl", "/sl x", ""].map(typedSlash)).toEqual(["", "sl", "csv-analyzer", null, null, null]);
});

it("offers the skills that are on, those that begin so first", () => {
  expect(offered(SKILLS, "").map((one) => one.name)).toEqual(["slides", "summarization"]);
  expect(offered(SKILLS, "sum").map((one) => one.name)).toEqual(["summarization"]);
  expect(offered(SKILLS, "res")).toEqual([]);
});

it("makes a sentence of a skill's name, and leaves all else as it is", () => {
  expect(unslashed("/slides about tea\nand more", SKILLS)).toBe("Use the skill slides: about tea\nand more");
  expect(unslashed("/slides", SKILLS)).toBe("Use the skill slides.");
  for (const text of ["/usr/bin is a folder", "/research this", "/unknown x", "plain"]) expect(unslashed(text, SKILLS)).toBe(text);
});
