import { expect, it } from "vitest";

import { listTasks } from "./taskList";

const live = (id: string, status: string) => ({ id, agent: "poet", prompt: "write", status, text: "" });

it("takes ended tasks from the log, and running ones from the stream", () => {
  const kept = {
    t1: { agent: "poet", prompt: "write", status: "done", answer: "Roses", reason: "" },
    t2: { agent: "critic", prompt: "read", status: "running" },
  };
  expect(
    listTasks(kept, [live("t1", "running"), live("t2", "waiting"), live("t3", "running")]).map(
      ({ id, status, text }) => [id, status, text],
    ),
  ).toEqual([
    ["t1", "done", "Roses"],
    ["t2", "waiting", ""],
    ["t3", "running", ""],
  ]);
});

it("is empty where there are none", () => {
  expect(listTasks(undefined, [])).toEqual([]);
});
