import { expect, it } from "vitest";

import type { AgentDetail } from "../api";
import { examplePrompts } from "./examples";

const tool = (name: string, source = "filesystem") => ({ name, source }) as AgentDetail["tools"][number];

it("makes prompts for the tools of an agent", () => {
  const files = examplePrompts({ examples: [], tools: [tool("write_file"), tool("read_file"), tool("ls")] });
  expect(files).toHaveLength(2);
  expect(files.join()).toMatch(/CSV.*List the files/);
  expect(examplePrompts({ examples: [], tools: [tool("calculate", "builtin")] })).toEqual([
    expect.stringContaining("interest"),
  ]);
  expect(examplePrompts({ examples: [], tools: [tool("weather", "server")] })).toEqual([
    "What can you do with the tool weather?",
  ]);
});

it("uses the prompts of the agent's config, and plain ones without tools", () => {
  expect(examplePrompts({ examples: ["Say hello."], tools: [tool("execute")] })).toEqual(["Say hello."]);
  expect(examplePrompts({ examples: [], tools: [] })).toHaveLength(3);
});
