import { expect, it } from "vitest";

import { kindOf, viewsOf } from "./kind";

it.each([
  ["a.py", "x = 1", "code"],
  ["a.js", "x = 1", "script"],
  ["a.jsx", "export default () => <b />", "component"],
  ["a.jsx", 'import B from "./b";\nexport default () => <B />', "script"],
  ["a.html", "<p>", "html"],
  ["data/a.CSV", "a,b", "data"],
  ["a.json", '[{"a": 1}]', "data"],
  ["a.json", '{"a": 1}', "code"],
  ["a.json", "[{", "code"],
  ["notes.md", "# One\n\ntext", "document"],
  ["notes.md", "---\ntitle: x\n---\n\n# One\n\ntext", "document"],
  ["talk.md", "# One\n\n---\n\n## Two\n\n- x", "slides"],
  ["a.html", "<p>", "html"],
  ["a.svg", "<svg/>", "svg"],
  ["plan.mmd", "graph TD", "diagram"],
  ["Makefile", "all:", "code"],
])("knows what %s is", (name, text, kind) => {
  expect(kindOf(name, text)).toBe(kind);
});

it("opens a thing in the way people look at it first", () => {
  expect([viewsOf("data")[0], viewsOf("slides")[0], viewsOf("html")[0]]).toEqual(["grid", "slides", "preview"]);
});
