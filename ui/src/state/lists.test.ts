import { expect, it } from "vitest";

import type { Thread } from "../api";
import { mergePage } from "./lists";

const thread = (id: string, updated: number): Thread => ({
  id,
  title: id,
  agent_id: "a",
  meta: {},
  created: 0,
  updated,
  last: 1,
});

it("is the same list when nothing has changed", () => {
  const old = [thread("b", 2), thread("a", 1)];
  expect(mergePage(old, "", [thread("b", 2), thread("a", 1)], "").threads).toBe(old);
});

it("takes what is new, and keeps older ones that were asked for", () => {
  const old = [thread("c", 3), thread("b", 2), thread("a", 1)];
  const made = mergePage(old, "further", [thread("d", 4), thread("c", 3)], "next");
  expect(made.threads.map((one) => one.id)).toEqual(["d", "c", "b", "a"]);
  expect([made.threads[1] === old[0], made.more]).toEqual([true, "further"]);
});

it("forgets what is gone", () => {
  expect(mergePage([thread("b", 2), thread("a", 1)], "", [thread("a", 1)], "").threads.map((one) => one.id)).toEqual([
    "a",
  ]);
});
