import { expect, it, vi } from "vitest";

import { cacheRecent } from "./recent";

it("what was made lately is not made again, and what nobody asked for goes first", () => {
  const make = vi.fn((text: string) => text.length);
  const length = cacheRecent(make, 2);
  expect([length("a"), length("bb"), length("a"), length("ccc"), length("a")]).toEqual([1, 2, 1, 3, 1]);
  expect(make.mock.calls.flat()).toEqual(["a", "bb", "ccc"]);
  length("bb"); // it had to go for "ccc"
  expect(make).toHaveBeenCalledTimes(4);
});
