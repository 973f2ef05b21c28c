import { expect, it } from "vitest";

import { waitFor } from "./session";

it("tries again soon, then later, and does not give up", () => {
  expect(Array.from({ length: 8 }, (_, at) => waitFor(at + 1))).toEqual([
    500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000,
  ]);
});
