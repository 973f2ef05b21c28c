/** Example prompts of an agent: its own, or generated ones for its tools. */

import type { AgentDetail } from "../api";

const MOST = 4;

/** Prompts by the tool that they use, the most telling first. */
const BY_TOOL: readonly (readonly [tools: readonly string[], prompt: string])[] = [
  [["load_skill"], "Which skills do you have, and when do you use them?"],
  [["execute", "bash"], "Run a command that shows how much space is left on this machine."],
  [["write_file"], "Write a CSV file with ten made-up sales, and show me a chart of it."],
  [["read_file", "ls"], "List the files here, and tell me what they are about."],
  [["web_search"], "Search the web for this week's news about open-source software, with sources."],
  [["http_request"], "Fetch https://example.com, and summarize the page in one sentence."],
  [["calculate"], "How much is 1,000 € after 12 years at 3.5 % interest?"],
  [["task"], "Split a question about two topics between subagents, and combine their answers."],
  [["write_todos"], "Plan the steps of moving to another flat as a todo list."],
  [["datetime"], "How many working days are left this month?"],
  [["ask_user"], "Ask me three questions to find a name for my project."],
];
const WITHOUT_TOOLS = [
  "Explain hooks of an agent to a new colleague in three sentences.",
  "Rewrite this politely: I need your report today.",
  "Give me three ideas for a team event in winter.",
];

export function examplePrompts(agent: Pick<AgentDetail, "examples" | "tools">): string[] {
  if (agent.examples.length) return agent.examples.slice(0, 2 * MOST);
  const names = new Set(agent.tools.map((tool) => tool.name));
  const known = BY_TOOL.filter(([tools]) => tools.some((name) => names.has(name))).map(([, prompt]) => prompt);
  const covered = new Set(BY_TOOL.flatMap(([tools]) => tools));
  const own = agent.tools
    .filter((tool) => !covered.has(tool.name) && ["server", "mcp", "code"].includes(tool.source))
    .map((tool) => `What can you do with the tool ${tool.name}?`);
  const found = [...own.slice(0, 2), ...known].slice(0, MOST);
  return found.length ? found : WITHOUT_TOOLS;
}
