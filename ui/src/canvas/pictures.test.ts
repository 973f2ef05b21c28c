import { expect, it } from "vitest";

import { resolvePicture } from "./pictures";

it.each([
  ["talk/deck.md", "a.png", "talk/a.png"],
  ["talk/deck.md", "../img/a b.png", "img/a b.png"],
  ["deck.md", "./img/a%20b.png", "img/a b.png"],
  ["deck.md", "/a.png", "a.png"],
  ["deck.md", "../../a.png", "a.png"],
  ["deck.md", "https://elsewhere.example/a.png", ""],
  ["deck.md", "//elsewhere.example/a.png", ""],
  ["deck.md", "javascript:alert(1)", ""],
  ["deck.md", "50%.png", "50%.png"],
])("%s names %s", (document, name, path) => {
  expect(resolvePicture(document, name)).toBe(path);
});
