import { fireEvent, render, screen } from "@testing-library/react";
import { expect, it } from "vitest";

import { Onion } from "./Onion";

it("draws the first hook outermost and says what a ring did", () => {
  render(
    <Onion
      operation="tool_use"
      rings={[
        { name: "tracing.end", position: "after" },
        { name: "permissions.judge", position: "guard", source: "agents.yaml", fail: "closed", did: "block: no" },
      ]}
    />,
  );
  const [outer, inner] = screen.getAllByRole("img");
  expect(Number(outer!.getAttribute("r"))).toBeGreaterThan(Number(inner!.getAttribute("r")));
  fireEvent.focus(inner!);
  expect(
    screen.getByText("permissions.judge (guard, from agents.yaml, fails closed): block: no", {
      selector: "figcaption",
    }),
  ).toBeTruthy();
  fireEvent.blur(inner!);
  expect(screen.getByText("2 hooks around every tool use")).toBeTruthy();
});
