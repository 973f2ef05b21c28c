import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { patchApp } from "../../state/app";
import Replay from "../Replay";

const CHANGE = {
  thread_id: "t1",
  title: "<i>Clean up</i>",
  seq: 4,
  call_id: "c",
  tool: "execute",
  args: { command: "rm -r x" },
  recorded: "allow",
  now: "block",
  reason: "the permission rule Bash(rm *) denies this",
};

let asked: { method: string; path: string; body: unknown }[] = [];
let report: object;

beforeEach(() => {
  asked = [];
  report = {
    threads: 2,
    uses: 5,
    changes: [CHANGE],
    skipped: ["t2 entry 3: the agent has no tool named 'add'"],
    more: true,
  };
  patchApp({ me: { id: "1", username: "ada", role: "user" }, agents: [], agent: "coder", thread: "" });
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    asked.push({ method: init.method!, path, body: init.body ? (JSON.parse(init.body as string) as unknown) : null });
    const permissions = {
      agent_id: "coder",
      mode: "plan",
      rules: [{ type: "deny", rule: "Write", message: "", policy: "" }],
      grants: [],
    };
    return Promise.resolve(new Response(JSON.stringify(path === "/replay" ? report : permissions)));
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

async function look(deny: string): Promise<void> {
  fireEvent.change(screen.getByLabelText("Deny"), { target: { value: deny } });
  fireEvent.click(screen.getByRole("button", { name: "Replay" }));
  await screen.findByRole("region", { name: "Replay result" });
}

it("shows which uses a rule would have stopped, and why", async () => {
  render(<Replay />);
  await look("Bash(rm *)");
  expect(asked[0]).toEqual({
    method: "POST",
    path: "/replay",
    body: { agent_id: "coder", thread_ids: null, hooks: {}, rules: { deny: ["Bash(rm *)"], ask: [], allow: [] } },
  });
  const found = screen.getByRole("region", { name: "Replay result" }).textContent;
  expect(found).toContain("Changed verdicts in 1 thread");
  expect(found).toContain("would be blocked");
  expect(found).toContain("“<i>Clean up</i>”, entry 4");
  expect(found).toContain("Only the latest threads were replayed");
  expect(found).toContain("1 tool use skipped");
});

it("gives the agent the rules that were tried, beside those it has", async () => {
  render(<Replay />);
  await look("Bash(rm *)");
  fireEvent.click(screen.getByRole("button", { name: "Apply these rules to the agent" }));
  await waitFor(() => expect(asked.at(-1)!.method).toBe("PATCH"));
  expect(asked.at(-1)!.body).toEqual({
    hooks: { permissions: { mode: "plan", deny: ["Write", "Bash(rm *)"], ask: [], allow: [] } },
  });
});

it("says that nothing would have been different, and what to do without threads", async () => {
  report = { threads: 0, uses: 0, changes: [], skipped: [], more: false };
  render(<Replay />);
  await look("");
  expect(screen.getByText("No changes")).toBeTruthy();
  expect(screen.getByText(/No threads to replay/)).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Apply these rules to the agent" })).toBeNull();
});
