import { describe, expect, it } from "vitest";

import { isDeck, readDeck } from "./deck";
import { layoutComment, withLayout, withTheme } from "./deckChange";

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
    expect([deck.title, deck.author, deck.slides.map((slide) => slide.heading)]).toEqual([
      "The harvest",
      "Ada",
      ["The harvest", "Apples fell", "Code"],
    ]);
    expect(deck.slides[1]!.blocks).toEqual([
      { kind: "text", text: "- Frost in **April**" },
      {
        kind: "chart",
        chart: {
          kind: "line",
          title: "Harvest in tonnes",
          labels: ["apples", "pears"],
          series: [
            { name: "2023", values: [120, null] },
            { name: "2024", values: [80, 61] },
          ],
        },
      },
    ]);
    expect(deck.slides[1]!.notes).toBe("Tell them\nabout the night.");
    expect(deck.slides[0]!.layout).toBe("title");
  });

  it("is not cut inside of code", () => {
    expect(readDeck(DECK).slides[2]!.blocks).toEqual([{ kind: "text", text: "```python\nx = 1\n---\n```" }]);
  });

  it("has nothing of its own taken out of code", () => {
    const [slide] = readDeck("```python\n# a comment\nNote: no note\nLayout: title\n```\n\n---\n\n# Two").slides;
    expect(slide).toEqual({
      heading: "",
      blocks: [{ kind: "text", text: "```python\n# a comment\nNote: no note\nLayout: title\n```" }],
      notes: "",
      layout: "plain",
    });
    expect(withLayout("## A\n\n```\nLayout: title\n```\n\n---\n\n# B\n", 0, "")).toContain("Layout: title");
  });

  it("without anything in it has no slides", () => {
    expect(readDeck("").slides).toEqual([]);
    expect(isDeck("plain text")).toBe(false);
    expect(isDeck("---\ntitle: x\n---\n\n# One\n\ntext")).toBe(false);
    expect(isDeck(DECK)).toBe(true);
  });

  it("has columns with charts and pictures in them", () => {
    const [slide] = readDeck(
      "## Both\n\n::: columns\n- left\n|||\n![A map](map.png)\n```chart pie\n| a | n |\n| x | 3 |\n```\n:::\n",
    ).slides;
    expect(slide!.blocks).toEqual([
      {
        kind: "columns",
        columns: [
          [{ kind: "text", text: "- left" }],
          [
            { kind: "picture", words: "A map", path: "map.png" },
            { kind: "chart", chart: { kind: "pie", title: "", labels: ["x"], series: [{ name: "n", values: [3] }] } },
          ],
        ],
      },
    ]);
  });

  it.each([
    ["# A talk\n\nby Ada", "title"],
    ["## Next", "section"],
    ["Layout: section\n## Next\n\nsoon", "section"],
    ["> A quotation", "center"],
    ["# Reasons\n\n- one", "plain"],
    ["- one\n- two", "plain"],
    ["```\ncode\n```", "plain"],
    ["Layout: nonsense\n## Next\n\n- one", "plain"],
  ])("lays out %j", (text, layout) => {
    expect(readDeck(text).slides[0]!.layout).toBe(layout);
    expect(readDeck(text).slides[0]!.heading).not.toContain("Layout");
  });

  it("gets another theme and stays as it is otherwise", () => {
    expect(withTheme("# One\n", "sea")).toBe("---\ntheme: sea\n---\n\n# One\n");
    const changed = withTheme(withTheme(DECK, "ink"), "flame");
    expect(readDeck(changed)).toEqual({ ...readDeck(DECK), theme: "flame" });
    expect(readDeck("---\ntheme: <b>\n---\n# x\n").theme).toBe("plain");
  });

  it.each([
    ["1,200 t", 1200],
    ["−3.5", -3.5],
    ["12 %", 12],
    ["3,5", 3.5],
    ["none", null],
    ["1 000", 1000],
  ])("reads the figure %s", (cell, figure) => {
    const [slide] = readDeck(
      `## x\n\`\`\`chart bar\n| a | n |\n|---|---|\n| x | ${cell} |\n| y | 1 |\n\`\`\`\n`,
    ).slides;
    expect(slide!.blocks[0]).toMatchObject({ chart: { series: [{ values: [figure, 1] }] } });
  });

  it("gets another layout of one slide, and loses it again", () => {
    const changed = withLayout(DECK, 1, "center");
    expect(readDeck(changed).slides.map((slide) => slide.layout)).toEqual(["title", "center", "plain"]);
    expect(layoutComment(changed, 1)).toBe("center");
    expect(readDeck(withLayout(changed, 1, "section")).slides[1]!.layout).toBe("section");
    expect(withLayout(changed, 1, "")).toBe(DECK);
    expect(withLayout(DECK, 9, "title")).toBe(DECK);
  });
});

const COMMENTED = `---
theme: sea
---
<!-- Made by a program. -->
Layout: center
# Harvest <!-- 2024 -->
<!--
A note to the author
---
\`\`\`
-->
by Ada
---
<!-- only a comment -->
---
## Code
In a line \`<!-- stays -->\`, and <!--> this goes.

\`\`\`html
<!-- stays -->
\`\`\`
- one <!-- gone --> and two <!-- gone too -->
- never closed <!-- stays
`;

describe("comments", () => {
  const deck = readDeck(COMMENTED);
  it("are no text of a slide", () => {
    expect(deck.slides.map((slide) => slide.heading)).toEqual(["Harvest", "Code"]);
    expect(deck.slides[0]).toMatchObject({ layout: "center", blocks: [{ kind: "text", text: "by Ada" }] });
    const text = deck.slides[1]!.blocks.map((block) => (block.kind === "text" ? block.text : "")).join("\n");
    expect(text).toContain("In a line `<!-- stays -->`, and  this goes.");
    expect(text).toContain("```html\n<!-- stays -->\n```");
    expect(text).toContain("- one  and two\n- never closed <!-- stays");
  });
  it("stay in the document when its look is changed", () => {
    expect(layoutComment(COMMENTED, 0)).toBe("center");
    const changed = withLayout(COMMENTED, 1, "center");
    expect(readDeck(changed).slides[1]!.layout).toBe("center");
    expect(changed.replace("Layout: center\n## Code", "## Code")).toBe(COMMENTED);
    expect(isDeck(COMMENTED)).toBe(true);
  });
});
