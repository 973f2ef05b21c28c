import { expect, it } from "vitest";

import { fenceName, kindOf, longFences, viewsOf } from "./kind";

const lines = (count: number) => Array.from({ length: count }, (_, at) => `line ${at}`).join("\n");

it.each([
  ["a.py", "x = 1", "code"],
  ["data/a.CSV", "a,b", "data"],
  ["a.json", '[{"a": 1}]', "data"],
  ["a.json", '{"a": 1}', "code"],
  ["a.json", "[{", "code"],
  ["notes.md", "# One\n\ntext", "document"],
  ["notes.md", "---\ntitle: x\n---\n\n# One\n\ntext", "document"],
  ["talk.md", "# One\n\n---\n\n## Two\n\n- x", "slides"],
  ["a.html", "<p>", "html"],
  ["a.svg", "<svg/>", "svg"],
  ["Makefile", "all:", "code"],
])("knows what %s is", (name, text, kind) => {
  expect(kindOf(name, text)).toBe(kind);
});

it("opens a thing in the way people look at it first", () => {
  expect([viewsOf("data")[0], viewsOf("slides")[0], viewsOf("html")[0]]).toEqual(["grid", "slides", "preview"]);
});

it("finds what is long in an answer, and leaves what is short", () => {
  const answer = `Here:\n\n\`\`\`python\n${lines(16)}\n\`\`\`\n\nand\n\n\`\`\`\n${lines(15)}\n\`\`\`\n\n~~~csv\n${lines(20)}\n`;
  expect(longFences(answer).map((one) => [one.word, one.text.split("\n").length])).toEqual([["python", 17], ["csv", 22]]);
});

it("gives a name to what has none", () => {
  expect(["python", "csv", "", "Dockerfile", "../x"].map(fenceName)).toEqual(["answer.py", "answer.csv", "answer.txt", "Dockerfile", "answer.x"]);
});
