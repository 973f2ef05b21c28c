import { expect, it } from "vitest";

import { canOpen, fenceName, longFences } from "./fences";

const lines = (count: number) => Array.from({ length: count }, (_, at) => `line ${at}`).join("\n");

it("finds what is long in an answer, and leaves what is short", () => {
  const answer = `Here:\n\n\`\`\`python\n${lines(16)}\n\`\`\`\n\nand\n\n\`\`\`\n${lines(15)}\n\`\`\`\n\n~~~csv\n${lines(20)}\n`;
  expect(longFences(answer).map((one) => [one.word, one.text.split("\n").length])).toEqual([
    ["python", 17],
    ["csv", 22],
  ]);
});

it("gives a name to what has none", () => {
  expect(["python", "csv", "", "Dockerfile", "../x"].map(fenceName)).toEqual([
    "answer.py",
    "answer.csv",
    "answer.txt",
    "Dockerfile",
    "answer.x",
  ]);
});

it("opens what has more than fifteen lines", () => {
  expect([canOpen(lines(15)), canOpen(`${lines(15)}\n\n`), canOpen(lines(16))]).toEqual([false, false, true]);
});
