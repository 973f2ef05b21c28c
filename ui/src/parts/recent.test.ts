import { expect, it, vi } from "vitest";

import { cacheRecent } from "./recent";

it("reuses recent results, and evicts the least recently used one", () => {
  const make = vi.fn((text: string) => text.length);
  const length = cacheRecent(make, 2);
  expect([length("a"), length("bb"), length("a"), length("ccc"), length("a")]).toEqual([1, 2, 1, 3, 1]);
  expect(make.mock.calls.flat()).toEqual(["a", "bb", "ccc"]);
  length("bb"); // it had to go for "ccc"
  expect(make).toHaveBeenCalledTimes(4);
});
