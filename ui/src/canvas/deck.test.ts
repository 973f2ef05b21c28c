import { describe, expect, it } from "vitest";

import { isDeck, readDeck } from "./deck";

const DECK = `---
title: The harvest
author: Ada
---

# The harvest
## What it means

---

## Apples fell

- Frost in **April**

\`\`\`chart line
Harvest in tonnes
| fruit | 2023 | 2024 |
|---|---|---|
| apples | 120 t | 80 |
| pears | | 61 |
\`\`\`

Note: Tell them
about the night.

---

## Code

\`\`\`python
x = 1
---
\`\`\`
`;

describe("a deck", () => {
  it("has its slides, charts and notes", () => {
    const deck = readDeck(DECK);
    expect([deck.title, deck.author, deck.slides.map((slide) => slide.heading)]).toEqual(["The harvest", "Ada", ["The harvest", "Apples fell", "Code"]]);
    expect(deck.slides[1]!.blocks).toEqual([
      { kind: "text", text: "- Frost in **April**" },
      {
        kind: "chart",
        chart: { kind: "line", title: "Harvest in tonnes", labels: ["apples", "pears"], series: [{ name: "2023", values: [120, null] }, { name: "2024", values: [80, 61] }] },
      },
    ]);
    expect(deck.slides[1]!.notes).toBe("Tell them\nabout the night.");
    expect(deck.slides[0]!.layout).toBe("title");
  });

  it("is not cut inside of code", () => {
    expect(readDeck(DECK).slides[2]!.blocks).toEqual([{ kind: "text", text: "```python\nx = 1\n---\n```" }]);
  });

  it("without anything in it has no slides", () => {
    expect(readDeck("").slides).toEqual([]);
    expect(isDeck("plain text")).toBe(false);
    expect(isDeck(DECK)).toBe(true);
  });
});
