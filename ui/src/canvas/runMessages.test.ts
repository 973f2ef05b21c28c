import { expect, it } from "vitest";

import { fence } from "../parts/fence";
import { fixRequest, readMessage } from "./runMessages";

it.each([null, 1, "ready", {}, { wick: "open" }, { wick: "console" }, { wick: "console", entries: "x" }])(
  "%j is no message",
  (data) => expect(readMessage(data)).toBeNull(),
);

it("takes the valid lines of a console", () => {
  const entries = [{ level: "error", text: "a" }, { level: "evil", text: "b" }, { level: "log", text: {} }, null];
  expect(readMessage({ wick: "console", entries, dropped: 3 })).toEqual({
    kind: "console",
    entries: [
      { level: "error", text: "a" },
      { level: "warn", text: "3 more lines" },
    ],
  });
});

it("limits what a page sends", () => {
  const flood = Array.from({ length: 10_000 }, () => ({ level: "log", text: "x".repeat(100_000) }));
  const message = readMessage({ wick: "console", entries: flood });
  expect(message?.kind === "console" && [message.entries.length, message.entries[0]!.text.length]).toEqual([
    200, 4_000,
  ]);
});

it("asks for a fix in a block that the page cannot end", () => {
  expect(fence("a\n```\nb")).toBe("````\na\n```\nb\n````");
  expect(fixRequest("a.html", [{ level: "error", text: "boom" }])).toContain("```\n[error] boom\n```");
});
