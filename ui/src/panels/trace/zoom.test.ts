import { expect, it } from "vitest";

import { around, moved, place, whole, zoomed } from "./zoom";

it("goes closer and further, and never beyond the run", () => {
  const close = zoomed(whole(1000), 0.5, 1000);
  expect(close).toEqual({ from: 250, to: 750 });
  expect(zoomed(whole(1000), 0.5, 1000, 0)).toEqual({ from: 0, to: 500 });
  expect(zoomed(close, 10, 1000)).toEqual({ from: 0, to: 1000 });
  expect(moved(close, 10, 1000)).toEqual({ from: 500, to: 1000 });
  expect(moved(close, -10, 1000)).toEqual({ from: 0, to: 500 });
  const tiny = Array.from({ length: 60 }).reduce((view: { from: number; to: number }) => zoomed(view, 0.5, 1000), whole(1000));
  expect(tiny.to - tiny.from).toBeCloseTo(0.05);
});

it("says where a span stands", () => {
  expect(place({ from: 100, to: 200 }, 150, 25)).toEqual({ left: 50, width: 25 });
  expect(place({ from: 100, to: 200 }, 0, 1000)).toEqual({ left: 0, width: 100 });
  expect(place({ from: 100, to: 200 }, 300, 10)).toBeNull();
  expect(place({ from: 100, to: 200 }, 0, 50)).toBeNull();
  expect(around(100, 100, 1000)).toEqual({ from: 92, to: 208 });
});
