import { expect, it } from "vitest";

import { createCall, toUserItem, type Reply } from "../state/fold";
import { likelyHeight } from "./heights";

const reply = (text: string, calls = 0): Reply => ({
  kind: "reply",
  key: "m1",
  seq: 1,
  run: "",
  text,
  reasoning: "",
  calls: Array.from({ length: calls }, (_, at) => createCall(`c${at}`, "note")),
  open: false,
  cut: false,
});

it("more lines, longer lines and more tools are higher", () => {
  const one = likelyHeight(reply("a line"));
  expect(likelyHeight(reply("a line\nand another"))).toBeGreaterThan(one);
  expect(likelyHeight(reply("a".repeat(500)))).toBeGreaterThan(4 * 24);
  expect(likelyHeight(reply("a line", 2)) - one).toBe(2 * (likelyHeight(reply("a line", 1)) - one));
  expect(likelyHeight(toUserItem(1, "a line"))).toBeGreaterThan(one);
});
