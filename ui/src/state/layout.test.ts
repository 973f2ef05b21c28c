import { expect, it } from "vitest";

import type { Panel } from "./app";
import { type Layout, NO_PANELS, placePanel, removePanel, shownPanels, swapPanels } from "./layout";

const placed = (...ids: Panel[]): Layout => ids.reduce(placePanel, NO_PANELS);

it.each([
  [["canvas", "files"], { panel: "canvas", beside: "files", below: null }],
  [["files", "canvas"], { panel: "canvas", beside: "files", below: null }],
  [["files", "canvas", "terminal"], { panel: "canvas", beside: "files", below: "terminal" }],
  [["canvas", "files", "usage"], { panel: "usage", beside: null, below: null }],
  [["terminal", "trace"], { panel: "trace", beside: null, below: "terminal" }],
  [["canvas", "canvas"], { panel: "canvas", beside: null, below: null }],
] as [Panel[], Partial<Layout>][])("%s are arranged", (ids, layout) => expect(placed(...ids)).toMatchObject(layout));

it("closing the main panel leaves the other ones", () => {
  const rest = removePanel(placed("canvas", "files", "terminal"), "canvas");
  expect(rest).toMatchObject({ panel: "files", beside: null, below: "terminal" });
  expect(shownPanels(removePanel(rest, "files"))).toEqual(["terminal"]);
});

it("closing the last panel ends the full width", () =>
  expect(removePanel({ ...NO_PANELS, panel: "canvas", wide: true }, "canvas")).toEqual(NO_PANELS));

it("any panel can be below another one", () => {
  const below = swapPanels(placed("trace"));
  expect(placePanel(below, "canvas")).toMatchObject({ panel: "canvas", below: "trace" });
  expect(swapPanels(placed("canvas", "terminal"))).toMatchObject({ panel: "terminal", below: "canvas" });
});
