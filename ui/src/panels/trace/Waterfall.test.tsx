import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { layOutSpans, type Span } from "../../parts/spans";
import { Waterfall } from "./Waterfall";

const span = (
  name: string,
  start: number,
  ms: number,
  attributes: Span["attributes"],
  more: Partial<Span> = {},
): Span => ({ name, start, ms, attributes: attributes ?? {}, ...more });

const RUN = span("run", 10, 1000, { "gen_ai.agent.name": "coder" }, {
  children: [
    span("step", 10, 900, { step: 1 }, {
      children: [
        span("llm.call", 10, 500, { "gen_ai.request.model": "gpt", "gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 100 }, { cost: 0.25 }),
        span("tool.call", 10.6, 200, { tool_name: "<img src=x>", tool_args: '{"path":"notes.txt"}' }, { error: "it broke", why: [{ hook: "judge", position: "guard", verdict: "block", reason: "no", ms: 1 }] }),
      ],
    }),
  ],
}); // prettier-ignore

beforeEach(() => {
  for (const size of ["clientHeight", "clientWidth"] as const)
    vi.spyOn(Element.prototype, size, "get").mockReturnValue(600); // nothing has a size here
});
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const names = () =>
  screen.queryAllByRole("treeitem").map((item) => item.querySelector(".trace-span-name")!.textContent.split(",")[0]);

it("is walked through with arrows, and says all that is known of a span", () => {
  render(<Waterfall rows={layOutSpans([RUN], true)} run="run_1" />);
  expect(names()).toEqual(["coder", "step 1", "gpt", "<img src=x>"]);
  const tree = screen.getByRole("tree");
  for (let times = 0; times < 3; times++) fireEvent.keyDown(tree, { key: "ArrowDown" });
  const details = within(screen.getByRole("region", { name: "Span gpt" }));
  expect(details.getByText("1,000")).toBeTruthy();
  expect(details.getByText("$0.25")).toBeTruthy();
  fireEvent.keyDown(tree, { key: "End" });
  expect(screen.getByText("it broke")).toBeTruthy();
  expect(screen.getByRole("table", { name: "Verdicts of hooks" }).textContent).toContain("no");
  expect(tree.getAttribute("aria-activedescendant")).toBe(screen.getAllByRole("treeitem").at(-1)!.id);
});

it("shows hooks when they are wanted, and only what is looked for", () => {
  render(<Waterfall rows={layOutSpans([RUN], true)} run="run_1" />);
  fireEvent.click(screen.getByRole("button", { name: "Hooks" }));
  expect(names()).toContain("judge: block");
  fireEvent.change(screen.getByLabelText("Filter spans"), { target: { value: "notes.txt" } });
  expect(names()).toEqual(["coder", "step 1", "<img src=x>"]);
  fireEvent.change(screen.getByLabelText("Filter spans"), { target: { value: "nowhere" } });
  expect(screen.getByText(/No matching spans/)).toBeTruthy();
});

it("goes closer to a span and back", () => {
  const { container } = render(<Waterfall rows={layOutSpans([RUN], true)} run="run_1" />);
  const end = () => container.querySelector(".trace-axis span:last-child small:last-child")!.textContent;
  expect(end()).toBe("1.0 s");
  const tree = screen.getByRole("tree");
  fireEvent.keyDown(tree, { key: "End" });
  fireEvent.keyDown(tree, { key: "Enter" });
  expect(end()).toBe("816 ms");
  fireEvent.keyDown(tree, { key: "0" });
  expect(end()).toBe("1.0 s");
  fireEvent.click(screen.getByRole("button", { name: "Zoom in" }));
  expect(end()).toBe("750 ms");
});

it("takes the wheel with Ctrl for itself, and leaves it to the page without", () => {
  const { container } = render(<Waterfall rows={layOutSpans([RUN], true)} run="run_1" />);
  const times = vi.spyOn(container.querySelector("[data-times]")!, "getBoundingClientRect");
  times.mockReturnValue({ left: 100, width: 200 } as DOMRect);
  const shown = () =>
    [...container.querySelectorAll(".trace-axis span:last-child small")].map((mark) => mark.textContent);
  const tree = screen.getByRole("tree");
  expect(fireEvent.wheel(tree, { deltaY: -100, clientX: 100 })).toBe(true);
  expect(fireEvent.wheel(tree, { deltaY: -100, clientX: 100, ctrlKey: true })).toBe(false);
  expect([shown()[0], shown().at(-1)]).toEqual(["0.00 ms", "800 ms"]); // around where the pointer is
  expect(fireEvent.wheel(tree, { deltaY: 100, shiftKey: true })).toBe(false);
  expect(shown()[0]).toBe("80 ms");
});
