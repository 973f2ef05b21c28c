import { expect, it } from "vitest";

import { chartConfig } from "./chartConfig";
import type { ChartData } from "./deck";

const LOOK = { colours: ["rgb(1, 2, 3)", "rgb(4, 5, 6)"], ink: "rgb(0, 0, 0)", ground: "rgb(9, 9, 9)", size: 12 };
const DATA: ChartData = {
  kind: "bar",
  title: "",
  labels: ["a", "b", "c"],
  series: [
    { name: "n", values: [1, null, 3] },
    { name: "m", values: [-2, 3, 5] },
  ],
};
const sets = (data: ChartData) => chartConfig(data, LOOK, {}).data.datasets;

it("has a set for each series, in its colour", () => {
  expect(sets(DATA).map((one) => [one.label, one.data, one.backgroundColor])).toEqual([
    ["n", [1, null, 3], "rgb(1, 2, 3)"],
    ["m", [-2, 3, 5], "rgb(4, 5, 6)"],
  ]);
});

it("fills an area in the colour of its line", () => {
  const config = chartConfig({ ...DATA, kind: "area" }, LOOK, {});
  expect(config.type).toBe("line");
  expect(config.data.datasets[1]).toMatchObject({ fill: "origin", backgroundColor: "rgba(4, 5, 6, 0.25)" });
});

it("cuts a pie of the first series, without negative slices", () => {
  const values = [-2, 3, 5];
  const [only, ...others] = sets({ ...DATA, kind: "pie", series: [{ name: "m", values }] });
  expect(others).toEqual([]);
  expect(only).toMatchObject({ data: [0, 3, 5], backgroundColor: ["rgb(1, 2, 3)", "rgb(4, 5, 6)", "rgb(1, 2, 3)"] });
});
