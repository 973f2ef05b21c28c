import { expect, it } from "vitest";

import { sumHookActions } from "./hookActions";

const why = (hook: string, verdict: string, more: object = {}) => ({
  hook,
  position: "guard",
  verdict,
  ms: 1,
  ...more,
});

it("adds up what each hook did, by operation", () => {
  const tools = [
    { name: "tool.call", start: 1, why: [why("judge", "pass"), why("edit", "pass", { changed: { a: 1 } })] },
    { name: "tool.call", start: 2, why: [why("judge", "pass")] },
    { name: "tool.call", start: 3, why: [why("judge", "block", { reason: "no" })] },
  ];
  const of = sumHookActions([
    { name: "run", start: 0, why: [why("judge", "pass")], children: [{ name: "step", start: 0, children: tools }] },
  ]);
  expect(of("tool_use", "judge")).toEqual({ text: "passed 2 times, blocked once, in 3 ms (no)", acted: true });
  expect(of("tool_use", "edit")).toEqual({ text: "changed once, in 1 ms", acted: true });
  expect(of("run", "judge")).toEqual({ text: "passed once, in 1 ms", acted: false });
  expect(of("step", "judge")).toBeUndefined();
});
