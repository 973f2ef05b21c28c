import { expect, it } from "vitest";

import { type Command, matchCommands, commandForKey, shortcut } from "./commands";

const ran: string[] = [];
const command = (id: string, title: string, keys?: string, enabled = true): Command => ({
  id,
  title,
  group: "Go",
  run: () => ran.push(id),
  enabled: () => enabled,
  ...(keys ? { keys } : {}),
});
const ALL = [
  command("palette", "Open the palette", "mod+k"),
  command("trace", "Show the trace", "g t"),
  command("stop", "Stop the run", "escape"),
  command("off", "Not now", "x", false),
];
const key = (key: string, more: KeyboardEventInit = {}, target: EventTarget = document.body) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, ...more });
  Object.defineProperty(event, "target", { value: target });
  return event;
};

it("finds commands by the words of their titles", () => {
  expect(matchCommands(ALL, "trace").map((one) => one.id)).toEqual(["trace"]);
  expect(matchCommands(ALL, "").map((one) => one.id)).toEqual(["palette", "trace", "stop"]);
  expect(matchCommands(ALL, "sh tr").map((one) => one.id)).toEqual(["trace"]);
  expect(matchCommands(ALL, "nothing at all")).toEqual([]);
});

it("knows keys, also two in a row, and not those of who writes", () => {
  expect(commandForKey(ALL, key("k", { ctrlKey: true }), "").command?.id).toBe("palette");
  const first = commandForKey(ALL, key("g"), "");
  expect(first).toEqual({ held: "g" });
  expect(commandForKey(ALL, key("t"), first.held).command?.id).toBe("trace");
  const area = document.createElement("textarea");
  expect(commandForKey(ALL, key("g", {}, area), "")).toEqual({ held: "" });
  expect(commandForKey(ALL, key("Escape", {}, area), "").command?.id).toBe("stop");
  expect(commandForKey(ALL, key("x"), "")).toEqual({ held: "" });
});

it("writes shortcuts as the machine does", () => {
  expect(shortcut("mod+k", true)).toBe("⌘K");
  expect(shortcut("mod+k", false)).toBe("Ctrl+K");
});
