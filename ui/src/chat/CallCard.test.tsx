import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it } from "vitest";

import { NOBODYS, patchApp } from "../state/app";
import { type Call, createCall } from "../state/fold";
import { serve } from "../testing/serve";
import { CallCard } from "./CallCard";

const call = (more: Partial<Call>): Call => ({
  ...createCall(crypto.randomUUID(), "execute"),
  args: { command: "make" },
  ...more,
});

beforeEach(() => patchApp({ ...NOBODYS, thread: "th_1" }));
afterEach(cleanup);

it("is open while it works and shows what it has printed", () => {
  render(<CallCard call={call({ state: "running", live: "cc a.c\n" })} />);
  expect(screen.getByLabelText("Output so far").textContent).toBe("cc a.c\n");
});

it("is closed when it is over, tells its exit code, and opens", () => {
  render(
    <CallCard
      call={call({ state: "done", output: '{"stdout":"ok\\n","stderr":"warned","exit_code":3}', ms: 1_500 })}
    />,
  );
  expect(screen.getByRole("button", { name: /execute/ }).textContent).toBe("execute makeexit code 3, 1.5 s");
  fireEvent.click(screen.getByRole("button", { name: /execute/ }));
  expect([screen.getByLabelText("Output").textContent, screen.getByLabelText("Error output").textContent]).toEqual([
    "ok\n",
    "warned",
  ]);
  expect(screen.getByText("Exit code 3.")).toBeTruthy();
});

it("stays open as it was left when it is drawn anew", () => {
  const done = call({ state: "done", output: "fine" });
  const { unmount } = render(<CallCard call={done} />);
  fireEvent.click(screen.getByRole("button", { name: /execute/ }));
  unmount();
  render(<CallCard call={done} />);
  expect(screen.getByLabelText("Output").textContent).toBe("fine");
});

it("waits for the user only in the thread where that is asked", () => {
  const one = call({ state: "running" });
  const asked = { id: "a", thread_id: "th_2", agent_id: "", title: "", question: "?", call_id: one.id };
  patchApp({ approvals: [asked] });
  render(<CallCard call={one} />);
  expect(screen.getByRole("group").getAttribute("aria-label")).toBe("execute: running");
  cleanup();
  patchApp({ approvals: [{ ...asked, thread_id: "th_1" }] });
  render(<CallCard call={one} />);
  expect(screen.getByRole("group").getAttribute("aria-label")).toBe("execute: needs approval");
});

it("shows the calls of a program below the lines that made them", () => {
  const nested = (id: string, line: number): Call => ({
    ...call({ state: "done" }),
    id,
    name: id,
    lines: [line, line],
  });
  const program = call({ name: "run_code", args: { code: "a = 1\nawait add(a=a)\n" }, state: "running" });
  render(<CallCard call={{ ...program, calls: [nested("add", 2)] }} />);
  const lines = screen.getAllByRole("listitem");
  expect(lines.map((line) => line.querySelector("code")?.textContent)).toEqual(["a = 1", "await add(a=a)"]);
  expect(lines[1]?.querySelector("[role=group]")?.getAttribute("aria-label")).toBe("add: done");
});

it("says why, with every hook's verdict", async () => {
  const failed = call({
    state: "failed",
    error: "no",
    why: [{ hook: "permissions.check", position: "guard", verdict: "block" }],
  });
  const verdict = {
    hook: "permissions.check",
    position: "guard",
    verdict: "block",
    reason: "Only people push",
    ms: 0.5,
  };
  const server = serve({
    [`GET /threads/th_1/calls/${failed.id}/why`]: () => ({
      thread_id: "th_1",
      run_id: "r",
      call_id: failed.id,
      tool: "execute",
      args: {},
      seq: 1,
      verdicts: [verdict],
      questions: [{ id: "a", question: "May it?", at: 0, allowed: false, by: "Ada", reason: "not now" }],
    }),
  });
  render(<CallCard call={failed} />);
  const why = screen.getByText("Why").closest("details")!;
  expect(why.textContent).toContain("permissions.check: block");
  why.open = true;
  fireEvent(why, new Event("toggle"));
  expect((await screen.findByLabelText("Verdicts of hooks")).textContent).toContain("Only people push");
  expect(screen.getByText(/Ada denied it: not now/)).toBeTruthy();
  server.stop();
});

it("shows what outsiders wrote as text", () => {
  const { container } = render(
    <CallCard
      call={call({
        state: "failed",
        name: "<b>x</b>",
        args: { path: "<img src=x onerror=alert(1)>" },
        error: "<script>1</script>",
      })}
    />,
  );
  expect(container.querySelector("script, img, b b")).toBeNull();
  expect(screen.getByLabelText("Error").textContent).toBe("<script>1</script>");
});

it("names the hook that denied it", () => {
  render(<CallCard call={call({ state: "failed", error: "no", deniedBy: "permissions.check" })} />);
  expect(screen.getByRole("group", { name: "execute: denied by permissions.check" })).toBeTruthy();
});
