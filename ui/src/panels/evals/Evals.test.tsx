import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { patchApp } from "../../state/app";
import Evals from "../Evals";

const CALL = {
  tool: "refund",
  args: { amount: 2000 },
  decision: "ran",
  asked: false,
  hook: "",
  reason: "",
  output: "<b>refunded</b>",
  failed: false,
};
const result = (passed: boolean, calls: object[] = [], verdict = passed ? "passed" : "regressed") => ({
  passed,
  verdict,
  score: passed ? 1 : 0.5,
  checks: [{ name: "blocked", passed, score: 1, detail: passed ? "" : "refund was not blocked" }],
  outcome: "completed",
  reason: "completed",
  text: "Done.",
  calls,
  steps: 2,
  tokens: 42,
  cost: null,
});
const variant = (name: string, failed: number) => ({
  name,
  agent: `shop:${name}`,
  passed: 2 - failed,
  failed,
  score: 0.75,
  tokens: 84,
  cost: 0.0125,
});
const INFO = {
  name: "nightly",
  suite: "shop",
  updated: 1,
  partial: true,
  cases: 2,
  regressions: 1,
  variants: [variant("base", 0), variant("loose", 1)],
};
const REPORT = {
  version: 1,
  suite: "shop",
  partial: true,
  planned: 4,
  variants: INFO.variants,
  regressions: [
    {
      case: "large",
      variant: "loose",
      against: "variant",
      reference: "base",
      detail: "blocked: refund was not blocked",
    },
  ],
  cases: [
    { id: "small", input: "Refund order 7.", thread: "", results: { base: result(true), loose: result(true) } },
    {
      id: "large",
      input: "<i>Refund</i> 2,000.",
      thread: "th_1",
      results: { base: result(true), loose: result(false, [CALL]) },
    },
  ],
};

let asked: string[] = [];
let reports: object[];

beforeEach(() => {
  asked = [];
  reports = [INFO, { ...INFO, name: "weekly" }];
  patchApp({ me: { id: "1", username: "olga", role: "operator" } });
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response(JSON.stringify(path === "/evals" ? { reports } : REPORT)));
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("shows the variants side by side, and what regressed", async () => {
  render(<Evals />);
  const table = await screen.findByRole("region", { name: "Table of cases" });
  expect(
    within(table)
      .getAllByRole("columnheader")
      .map((cell) => cell.textContent),
  ).toEqual(["case", "base", "loose"]);
  expect(within(table).getByText("regressed")).toBeTruthy();
  expect(screen.getByRole("region", { name: "Table of variants" }).textContent).toContain("loose1 of 20.7584$0.01");
  expect(screen.getByRole("region", { name: "Regressions" }).textContent).toContain(
    "fails with loose, passes with base",
  );
  expect(screen.getByRole("note").textContent).toContain("This report is partial");
});

it("shows changed requests and known failures", async () => {
  const rows = REPORT.cases.map((one, at) => ({
    ...one,
    results: { base: result(false, [], ["changed", "known_failure"][at]) },
  }));
  vi.stubGlobal("fetch", (path: string) =>
    Promise.resolve(new Response(JSON.stringify(path === "/evals" ? { reports } : { ...REPORT, cases: rows }))),
  );
  render(<Evals />);
  const table = await screen.findByRole("region", { name: "Table of cases" });
  expect(within(table).getByText("changed")).toBeTruthy();
  expect(within(table).getByText("known failure")).toBeTruthy();
});

it("opens what was done in a case, as text", async () => {
  const { container } = render(<Evals />);
  fireEvent.click(await screen.findByRole("button", { name: "large" }));
  const details = screen.getByRole("region", { name: "Case large" });
  expect(details.textContent).toContain("<i>Refund</i> 2,000.");
  expect(details.textContent).toContain("refund was not blocked");
  expect(details.textContent).toContain("<b>refunded</b>");
  expect(container.querySelector("i, pre b")).toBeNull();
  expect(within(details).getByRole("button", { name: "Open the thread" })).toBeTruthy();
  expect(screen.getByRole("button", { name: "large" }).getAttribute("aria-expanded")).toBe("true");
  fireEvent.click(screen.getByRole("button", { name: "large" }));
  expect(screen.queryByRole("region", { name: "Case large" })).toBeNull();
});

it("filters the cases, and loads another report", async () => {
  render(<Evals />);
  fireEvent.click(await screen.findByRole("button", { name: "Failed" }));
  expect(screen.queryByRole("button", { name: "small" })).toBeNull();
  fireEvent.change(screen.getByLabelText("Report"), { target: { value: "weekly" } });
  expect(await screen.findByRole("button", { name: "small" })).toBeTruthy();
  expect(asked.at(-1)).toBe("/evals/weekly");
});

it("says how to store a report, and who can see them", async () => {
  reports = [];
  const { rerender } = render(<Evals />);
  expect(await screen.findByText(/wick eval run suite.yaml --save NAME/)).toBeTruthy();
  patchApp({ me: { id: "2", username: "ada", role: "user" } });
  asked = [];
  rerender(<Evals />);
  expect(screen.getByText(/Only operators can see them/)).toBeTruthy();
  expect(asked).toEqual([]);
});
