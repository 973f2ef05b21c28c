import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type * as api from "../../api";
import { app, patchApp } from "../../state/app";
import { Backend, placeOf } from "./Backend";
import { Hooks } from "./Hooks";
import { Permissions } from "./Permissions";
import { toRing } from "./Rings";
import { bySource } from "./Tools";

let asked: { method: string; path: string; body: unknown }[] = [];
let answers: Record<string, unknown> = {};

beforeEach(() => {
  asked = [];
  patchApp({ me: { id: "1", username: "ada", role: "user" } });
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    asked.push({ method: init.method!, path, body: init.body ? (JSON.parse(init.body as string) as unknown) : null });
    const answer = answers[`${init.method} ${path}`] ?? null;
    return Promise.resolve(answer instanceof Response ? answer : new Response(JSON.stringify(answer)));
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const BACKEND: api.BackendInfo = {
  mode: "remote", sandbox_url: null, type: "docker", workdir: "/workspace", status: "launched", reason: "",
  protection: { level: "strong", by: "docker", says: "commands run in a container", asks: false },
}; // prettier-ignore

it("knows the three places of an agent, and that an engine elsewhere takes an operator", () => {
  expect([
    placeOf(null),
    placeOf({ ...BACKEND, mode: "local" }),
    placeOf(BACKEND),
    placeOf({ ...BACKEND, sandbox_url: "tcp://h:1" }),
  ]).toEqual([null, "local", "docker", "remote"]);
  render(<Backend agent="a" backend={BACKEND} />);
  expect(screen.getByRole("button", { name: "Local Docker" }).getAttribute("aria-pressed")).toBe("true");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Remote Docker" }).disabled).toBe(true);
});

it("switches to another place, and stops what runs there", async () => {
  answers = {
    "PATCH /agents/a/backend": { ...BACKEND, mode: "local", status: "idle" },
    "GET /agents/a/backend": { ...BACKEND, status: "idle" },
    "POST /agents/a/container": {},
  };
  render(<Backend agent="a" backend={BACKEND} />);
  fireEvent.click(screen.getByRole("button", { name: "Stop" }));
  await waitFor(() => expect(screen.getByRole("status").textContent).toBe("idle"));
  fireEvent.click(screen.getByRole("button", { name: "This machine" }));
  await waitFor(() =>
    expect(screen.getByRole("button", { name: "This machine" }).getAttribute("aria-pressed")).toBe("true"),
  );
  expect(asked.map((one) => [one.method, one.path, one.body])).toEqual([
    ["POST", "/agents/a/container", { action: "stop" }],
    ["GET", "/agents/a/backend", null],
    ["PATCH", "/agents/a/backend", { mode: "local", sandbox_url: null }],
  ]);
});

it("switches a hook off, and shows what the server makes of it", async () => {
  const hook = (on: boolean): api.HookInfo => ({
    name: "todos",
    on,
    changed: !on,
    options: on,
    points: ["before_tool_use"],
    tools: ["write_todos"],
    refused: "",
  });
  answers = { "GET /agents/a/hooks": { hooks: [hook(true)] }, "PATCH /agents/a/hooks": { hooks: [hook(false)] } };
  render(<Hooks agent="a" changes={0} />);
  fireEvent.click(await screen.findByRole("switch", { name: "Hook todos", checked: true }));
  await screen.findByRole("switch", { name: "Hook todos", checked: false });
  expect(asked.at(-1)!.body).toEqual({ hooks: { todos: false } });
  fireEvent.click(screen.getByRole("button", { name: "Reset todos" }));
  await waitFor(() => expect(asked.at(-1)!.body).toEqual({ hooks: { todos: null } }));
});

it("does not change a hook that only an operator may change, and shows the reason", async () => {
  const hook = {
    name: "budget",
    on: true,
    changed: false,
    options: {},
    points: [],
    tools: [],
    refused: "only an operator changes budget",
  };
  answers = { "GET /agents/a/hooks": { hooks: [hook] } };
  render(<Hooks agent="a" changes={0} />);
  const found = await screen.findByRole("switch", {
    name: "Hook budget",
    description: "only an operator changes budget",
  });
  const before = asked.length;
  fireEvent.click(found);
  expect(found.getAttribute("aria-disabled")).toBe("true");
  expect(asked.length).toBe(before);
});

const AGENT: api.AgentDetail = {
  agent_id: "a",
  name: "a",
  model: "m",
  origin: "created",
  shared: false,
  hooks: [],
  system_prompt: "",
  context_window: null,
  answering_model: "m",
  is_demo: false,
  examples: [],
  tools: [],
  missing_tools: [],
  backend: null,
};

it("adds a rule to those that are there, and takes a grant back", async () => {
  const rules = [{ type: "allow", rule: "Read", message: "", policy: "" }];
  answers = {
    "GET /agents/a/permissions": {
      agent_id: "a",
      mode: "default",
      rules,
      grants: [{ id: "g1", tool: "execute", args: { command: "<b>ls</b>" } }],
    },
  };
  render(<Permissions agent={AGENT} changes={0} />);
  fireEvent.change(await screen.findByRole("textbox", { name: "Rule" }), { target: { value: " Bash(rm *) " } });
  fireEvent.click(screen.getByRole("button", { name: "Add" }));
  await waitFor(() => expect(asked.some((one) => one.method === "PATCH")).toBe(true));
  expect(asked.find((one) => one.method === "PATCH")!.body).toEqual({
    hooks: { permissions: { mode: "default", deny: ["Bash(rm *)"], ask: [], allow: ["Read"] } },
  });
  expect(screen.getByLabelText("Command").textContent).toContain("<b>ls</b>");
  await waitFor(() => expect(screen.getByRole<HTMLInputElement>("textbox", { name: "Rule" }).value).toBe(""));
  fireEvent.click(screen.getByRole("button", { name: "Revoke execute" }));
  await waitFor(() =>
    expect(asked.some((one) => one.method === "DELETE" && one.path === "/agents/a/permissions/grants/g1")).toBe(true),
  );
});

it("keeps a rule that is refused, and offers none to those who may only look", async () => {
  const refused = Response.json({ error: { code: "invalid", message: "that is no rule" } }, { status: 422 });
  answers = {
    "GET /agents/a/permissions": { agent_id: "a", mode: "default", rules: [], grants: [] },
    "PATCH /agents/a/hooks": refused,
  };
  const { unmount } = render(<Permissions agent={AGENT} changes={0} />);
  const field = await screen.findByRole<HTMLInputElement>("textbox", { name: "Rule" });
  fireEvent.change(field, { target: { value: "Bash(" } });
  const add = screen.getByRole<HTMLButtonElement>("button", { name: "Add" });
  fireEvent.click(add);
  expect(add.disabled).toBe(true); // the next change starts from the server's answer
  await waitFor(() => expect(add.disabled).toBe(false));
  expect(field.value).toBe("Bash(");
  expect(app.get().notices.at(-1)!.text).toBe("that is no rule");
  unmount();
  render(<Permissions agent={{ ...AGENT, shared: true }} changes={0} />);
  expect((await screen.findByRole<HTMLSelectElement>("combobox", { name: "Mode" })).disabled).toBe(true);
  expect(screen.queryByRole("textbox", { name: "Rule" })).toBeNull();
});

it("puts tools together by where they are from, and says of a ring what it did", () => {
  const tool = (name: string, source: string) => ({
    name,
    source,
    description: "",
    kind: "",
    read_only: false,
    parameters: {},
  });
  expect(
    bySource([tool("a", "x"), tool("b", "y"), tool("c", "x")]).map(([source, tools]) => [source, tools.length]),
  ).toEqual([
    ["x", 2],
    ["y", 1],
  ]);
  const ring = {
    hook: "permissions.check",
    capability: "permissions",
    source: "permissions",
    position: "guard",
    point: "guard_tool_use",
    match: ["execute"],
    priority: 0,
    timeout: 1,
    inherit: true,
    shadow: false,
    fail: "closed" as const,
  };
  expect(toRing(ring, "tool_use", () => ({ text: "blocked once", acted: true }))).toEqual({
    name: "permissions.check",
    position: "guard",
    source: "permissions",
    fail: "closed",
    match: "execute",
    did: "blocked once",
    acted: true,
  });
  expect(toRing({ ...ring, match: null, fail: "open" }, "tool_use", () => undefined)).toEqual({
    name: "permissions.check",
    position: "guard",
    source: "permissions",
    fail: "open",
  });
});
