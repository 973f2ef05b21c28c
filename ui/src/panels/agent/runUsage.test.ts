import { expect, it } from "vitest";

import type { Run, Trace } from "../../api";
import { measureRun } from "./runUsage";

const RUN: Run = {
  id: "r",
  thread_id: "t",
  agent_id: "a",
  state: "ended",
  started: 100,
  ended: 112,
  usage: { input_tokens: 70, output_tokens: 30 },
  cost: null,
};

it("counts steps and tools of the run, and not those of its subagents", () => {
  const step = (run: string, children: Trace["spans"] = []) => ({
    name: "step",
    start: 1,
    attributes: { run_id: run },
    children,
  });
  const tool = (run: string, children: Trace["spans"] = []) => ({
    name: "tool.call",
    start: 1,
    attributes: { run_id: run },
    children,
  });
  const trace: Trace = {
    run: "r",
    thread_id: "t",
    agent: "a",
    spans: [step("r", [tool("r", [step("child", [tool("child")])])]), step("r")],
  };
  expect(measureRun(RUN, trace)).toEqual({ steps: 2, tool_calls: 1, tokens: 100, seconds: 12, cost: 0 });
  expect(measureRun({ ...RUN, ended: null, cost: 0.5 }, null, 130)).toEqual({
    steps: 0,
    tool_calls: 0,
    tokens: 100,
    seconds: 30,
    cost: 0.5,
  });
});
