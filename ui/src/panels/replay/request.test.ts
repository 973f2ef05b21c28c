import { expect, it } from "vitest";

import { hasRules, NOTHING, replayRequest } from "./request";

it("asks for all threads, or for one; for a set of guards, with rules of one's own", () => {
  expect(replayRequest("a", NOTHING)).toEqual({
    agent_id: "a",
    thread_ids: null,
    hooks: {},
    rules: { deny: [], ask: [], allow: [] },
  });
  const asked = { ...NOTHING, guards: "plan" as const, deny: " Bash(rm *)\n\nWrite ", thread: "t" };
  expect(replayRequest("a", asked)).toEqual({
    agent_id: "a",
    thread_ids: ["t"],
    hooks: { permissions: { mode: "plan" } },
    rules: { deny: ["Bash(rm *)", "Write"], ask: [], allow: [] },
  });
  expect([hasRules(NOTHING), hasRules({ ...NOTHING, ask: "\n " }), hasRules(asked)]).toEqual([false, false, true]);
});
