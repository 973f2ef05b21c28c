import { describe, expect, it } from "vitest";

import { hasMath, normalizeMath } from "./math";

describe("formulas in a text", () => {
  it.each([
    ["prices are no formula", "It costs $5, then $10.", "It costs \\$5, then \\$10."],
    ["a single formula", "The value $x$ grows.", "The value $x$ grows."],
    ["dollars before a digit are no formula", "from $a$5", "from \\$a\\$5"],
    ["a space inside the first dollar", "$ x$ y", "\\$ x\\$ y"],
    ["round brackets", "so \\(a + b\\) holds", "so $a + b$ holds"],
    ["square brackets on a line", "so\n\\[\na + b\n\\]\nholds", "so\n$$\na + b\n$$\nholds"],
    ["square brackets inside a line", "so \\[a\\] holds", "so $a$ holds"],
    ["double dollars", "$$a$$ and $5", "$$a$$ and \\$5"],
    [
      "code is left alone",
      "`$5` and `$x$`\n```sh\necho $HOME \\(a\\)\n```\n$6",
      "`$5` and `$x$`\n```sh\necho $HOME \\(a\\)\n```\n\\$6",
    ],
    ["escaped dollars", "\\$x\\$ and $y$", "\\$x\\$ and $y$"],
  ])("%s", (_, text, expected) => expect(normalizeMath(text)).toBe(expected));

  it.each([
    ["$x$", true],
    ["\\(x\\)", true],
    ["\\[x\\]", true],
    ["$5 and $10", false],
    ["`$x$`", false],
    ["plain", false],
  ])("%s has one: %s", (text, expected) => expect(hasMath(text)).toBe(expected));
});
