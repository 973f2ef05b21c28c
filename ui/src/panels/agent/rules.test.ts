import { expect, it } from "vitest";

import { added, kept, removed } from "./rules";

const FOUND = {
  agent_id: "a",
  mode: "plan" as const,
  grants: [],
  rules: [
    { type: "deny" as const, rule: "kind:shell(sudo *)", message: "no", policy: "shell" },
    { type: "deny" as const, rule: "Bash(rm *)", message: "careful", policy: "" },
    { type: "allow" as const, rule: "Read", message: "", policy: "" },
  ],
};

it("keeps the rules of an agent when one is added or removed, and its ready sets apart", () => {
  const rules = kept(FOUND);
  expect(rules).toEqual({ mode: "plan", deny: [{ rule: "Bash(rm *)", message: "careful" }], ask: [], allow: ["Read"] });
  expect(added(rules, "ask", "Write").ask).toEqual(["Write"]);
  expect(added(rules, "allow", "Read")).toBe(rules);
  expect(removed(rules, "deny", "Bash(rm *)").deny).toEqual([]);
  expect(removed(rules, "allow", "Write")).toEqual(rules);
});
