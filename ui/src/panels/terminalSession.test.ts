import { expect, it } from "vitest";

import { waitFor } from "./terminalSession";

it("tries again soon, then later, then no more", () => {
  expect(Array.from({ length: 9 }, (_, at) => waitFor(at + 1))).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, null]);
});
