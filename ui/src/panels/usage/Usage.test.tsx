import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { patchApp } from "../../state/app";
import Usage from "../Usage";
import { periodOf } from "./sums";

const AMOUNTS = { questions: 2, unpriced: 0, cached_tokens: 0, reasoning_tokens: 0, cache_write_tokens: 0 };
const TODAY = periodOf(1).until;
const row = (agent: string, model: string, tokens: number, cost: number) => ({
  ...AMOUNTS,
  user_id: "1",
  user: "ada",
  day: TODAY,
  agent,
  model,
  runs: 1,
  input_tokens: tokens,
  output_tokens: 0,
  cost,
});

let asked: string[] = [];
let report: unknown;

beforeEach(() => {
  asked = [];
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null); // nothing is drawn
  vi.stubGlobal("matchMedia", () => new EventTarget());
  patchApp({ me: { id: "1", username: "ada", role: "admin" }, agents: [] });
  report = {
    rows: [row("coder", "gpt", 12_000, 0.5), row("writer", "<b>local</b>", 3_000, 0)],
    total: { ...AMOUNTS, runs: 2, input_tokens: 15_000, output_tokens: 0, cost: 0.5 },
  };
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response(JSON.stringify(report)));
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("draws what was used by day, and says who used how much", async () => {
  render(<Usage />);
  expect((await screen.findByText("Tokens in")).parentElement!.textContent).toBe("Tokens in15k");
  expect(await screen.findByRole("img", { name: /tokens by day and model/ })).toBeTruthy();
  fireEvent.click(screen.getByText("Show as a table"));
  expect((await screen.findByRole("table")).textContent).toContain("<b>local</b>");
  expect(screen.getByRole("region", { name: "By model" }).textContent).toContain("<b>local</b>3,000");
  fireEvent.click(screen.getByRole("button", { name: "Cost" }));
  expect(screen.getByRole("region", { name: "By agent" }).textContent).toBe("By agentcoder$0.50");
});

it("requests the period, and the usage of all users for an admin", async () => {
  render(<Usage />);
  await screen.findByText("Tokens in");
  fireEvent.change(screen.getByLabelText("User"), { target: { value: "all" } });
  fireEvent.change(screen.getByLabelText("Period"), { target: { value: "7" } });
  expect(await screen.findByRole("button", { name: "by user" })).toBeTruthy();
  const { since, until } = periodOf(7);
  expect(decodeURIComponent(asked.at(-1)!)).toBe(`/usage?since=${since}&until=${until}&user=*`);
});

it("says what to do when nothing was used", async () => {
  report = { rows: [], total: { ...AMOUNTS, questions: 0, runs: 0, input_tokens: 0, output_tokens: 0, cost: 0 } };
  render(<Usage />);
  expect(await screen.findByText(/No usage in this period/)).toBeTruthy();
});
