import { expect, it } from "vitest";

import { withRule, currentRules, withoutRule } from "./rules";

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
  const rules = currentRules(FOUND);
  expect(rules).toEqual({ mode: "plan", deny: [{ rule: "Bash(rm *)", message: "careful" }], ask: [], allow: ["Read"] });
  expect(withRule(rules, "ask", "Write").ask).toEqual(["Write"]);
  expect(withRule(rules, "allow", "Read")).toBe(rules);
  expect(withoutRule(rules, "deny", "Bash(rm *)").deny).toEqual([]);
  expect(withoutRule(rules, "allow", "Write")).toEqual(rules);
});
