import { expect, it } from "vitest";

import { filePath } from "./links";

it.each([
  ["report.md", "report.md"],
  ["./out/my%20plan.csv#L3", "out/my plan.csv"],
  ["/out/a.md?x=1", "out/a.md"],
  ["100%.md", "100%.md"],
  ["https://example.com/a", null],
  ["//example.com/a", null],
  ["mailto:a@example.com", null],
  ["#part", null],
  ["", null],
])("%s is the file %s", (href, path) => expect(filePath(href)).toBe(path));
