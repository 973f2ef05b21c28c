import { expect, it } from "vitest";

import { viewAround, panView, spanPosition, wholeView, zoomView } from "./zoom";

it("goes closer and further, and never beyond the run", () => {
  const close = zoomView(wholeView(1000), 0.5, 1000);
  expect(close).toEqual({ from: 250, to: 750 });
  expect(zoomView(wholeView(1000), 0.5, 1000, 0)).toEqual({ from: 0, to: 500 });
  expect(zoomView(close, 10, 1000)).toEqual({ from: 0, to: 1000 });
  expect(panView(close, 10, 1000)).toEqual({ from: 500, to: 1000 });
  expect(panView(close, -10, 1000)).toEqual({ from: 0, to: 500 });
  const tiny = Array.from({ length: 60 }).reduce(
    (view: { from: number; to: number }) => zoomView(view, 0.5, 1000),
    wholeView(1000),
  );
  expect(tiny.to - tiny.from).toBeCloseTo(0.05);
});

it("says where a span stands", () => {
  expect(spanPosition({ from: 100, to: 200 }, 150, 25)).toEqual({ left: 50, width: 25 });
  expect(spanPosition({ from: 100, to: 200 }, 0, 1000)).toEqual({ left: 0, width: 100 });
  expect(spanPosition({ from: 100, to: 200 }, 300, 10)).toBeNull();
  expect(spanPosition({ from: 100, to: 200 }, 0, 50)).toBeNull();
  expect(viewAround(100, 100, 1000)).toEqual({ from: 92, to: 208 });
});
