/** The canvas reads the decks of the shared fixture as the skill `slides` does (tests/unit/skills/test_slides.py). */

import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

import { type Block, readDeck } from "./deck";

interface Case {
  name: string;
  lines: string[];
  deck: object;
}

const DECKS = JSON.parse(readFileSync("../tests/fixtures/decks.json", "utf8")) as Case[];

/** The words of a Markdown text, without the lines that open and close code, and without the marks of lists. */
function words(text: string): string {
  let fence = "";
  const lines = text.split("\n").map((line) => {
    const mark = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (mark && mark.startsWith(fence)) {
      fence = fence ? "" : mark;
      return "";
    }
    return fence ? line : line.replace(/^\s*([-*+]|\d{1,9}[.)])(\s+|$)/, "");
  });
  return (lines.join("\n").match(/[\p{L}\p{N}_]+/gu) ?? []).join(" ");
}

/** The blocks in the form of the fixture: successive blocks of text are one. */
function projected(blocks: Block[]): object[] {
  const found: { kind: string; words?: string }[] = [];
  for (const block of blocks) {
    const last = found.at(-1);
    if (block.kind === "columns")
      found.push({ kind: "columns", columns: block.columns.map(projected) } as { kind: string });
    else if (block.kind !== "text") found.push(block);
    else if (last?.kind === "text") last.words = `${last.words} ${words(block.text)}`.trim();
    else found.push({ kind: "text", words: words(block.text) });
  }
  return found;
}

function project(text: string): object {
  const deck = readDeck(text);
  return {
    ...deck,
    slides: deck.slides.map((slide) => ({
      ...slide,
      notes: slide.notes.split(/\s+/).join(" "),
      blocks: projected(slide.blocks),
    })),
  };
}

it.each(DECKS)("reads the deck: $name", ({ lines, deck }) => {
  expect(project(lines.join("\n"))).toEqual(deck);
});
