import { expect, it } from "vitest";

import { type Command, matching, pressed, shortcut } from "./commands";

const ran: string[] = [];
const command = (id: string, title: string, keys?: string, enabled = true): Command => ({ id, title, group: "Go", run: () => ran.push(id), enabled: () => enabled, ...(keys ? { keys } : {}) });
const ALL = [command("palette", "Open the palette", "mod+k"), command("trace", "Show the trace", "g t"), command("stop", "Stop the run", "escape"), command("off", "Not now", "x", false)];
const key = (key: string, more: KeyboardEventInit = {}, target: EventTarget = document.body) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, ...more });
  Object.defineProperty(event, "target", { value: target });
  return event;
};

it("finds commands by the words of their titles", () => {
  expect(matching(ALL, "trace").map((one) => one.id)).toEqual(["trace"]);
  expect(matching(ALL, "").map((one) => one.id)).toEqual(["palette", "trace", "stop"]);
  expect(matching(ALL, "sh tr").map((one) => one.id)).toEqual(["trace"]);
  expect(matching(ALL, "nothing at all")).toEqual([]);
});

it("knows keys, also two in a row, and not those of who writes", () => {
  expect(pressed(ALL, key("k", { ctrlKey: true }), "").command?.id).toBe("palette");
  const first = pressed(ALL, key("g"), "");
  expect(first).toEqual({ held: "g" });
  expect(pressed(ALL, key("t"), first.held).command?.id).toBe("trace");
  const area = document.createElement("textarea");
  expect(pressed(ALL, key("g", {}, area), "")).toEqual({ held: "" });
  expect(pressed(ALL, key("Escape", {}, area), "").command?.id).toBe("stop");
  expect(pressed(ALL, key("x"), "")).toEqual({ held: "" });
});

it("writes shortcuts as the machine does", () => {
  expect(shortcut("mod+k", true)).toBe("⌘K");
  expect(shortcut("mod+k", false)).toBe("Ctrl+K");
});
