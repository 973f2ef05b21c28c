import { expect, it } from "vitest";

import { fromLines, HIDDEN, kindOf, type Schema, toLines, variantsOf, withField, withoutHidden } from "./form";

const text: Schema = { type: "string" };

it("finds the kind of each field of a schema", () => {
  const kinds: [Schema, string][] = [
    [text, "text"],
    [{ anyOf: [{ type: "integer" }, { type: "null" }] }, "number"],
    [{ type: "string", enum: ["a"] }, "choice"],
    [{ type: "array", items: { anyOf: [text, { type: "object" }] } }, "lines"],
    [{ anyOf: [text, { type: "array", items: text }] }, "lines"],
    [{ anyOf: [{ type: "boolean" }, { type: "object", properties: { steps: { type: "integer" } } }] }, "capability"],
    [{ anyOf: [{ const: false }, { type: "object", properties: { type: { const: "local" } } }] }, "variants"],
    [{ type: "object", additionalProperties: text }, "map"],
    [{ type: "object", additionalProperties: true }, "json"],
    [{ anyOf: [text, { type: "object", properties: { model: text } }] }, "text"],
    [{}, "json"],
  ];
  for (const [schema, kind] of kinds) expect(kindOf(schema), JSON.stringify(schema)).toBe(kind);
  expect(Object.keys(variantsOf(kinds[6]![0]))).toEqual(["local"]);
});

it("keeps rules that are objects, and removes what is empty", () => {
  const rules = ["Bash(rm *)", { rule: "Read(x)", message: "No." }];
  expect(fromLines(toLines(rules))).toEqual(rules);
  expect(fromLines("a\n\n b")).toEqual(["a", " b"]);
  expect(withField({ a: 1, b: 2 }, "a", "")).toEqual({ b: 2 });
  expect(withField({}, "a", false)).toEqual({ a: false });
  expect(withoutHidden({ a: HIDDEN, b: [{ c: HIDDEN, d: 1 }] })).toEqual({ b: [{ d: 1 }] });
});
