import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { serve, stream } from "../testing/serve";
import { app, NOBODYS, openConversation, patchApp } from "./app";
import { closeChanges, onChange, onFileChange, openChanges } from "./changes";
import { applyChanges, insertThread } from "./push";

const row = (id: string, updated: number, more: object = {}) => ({
  id,
  title: id,
  agent_id: "coder",
  meta: {},
  created: 0,
  updated,
  last: updated,
  asking: 0,
  ...more,
});
const event = (kind: string, data: object) => `event: ${kind}\ndata: ${JSON.stringify({ event: kind, data })}\n\n`;
const lists = {
  "GET /agents/": () => ({ agents: [] }),
  "GET /threads": () => ({ threads: [row("th_1", 1)], next: "" }),
  "GET /approvals": () => ({ approvals: [] }),
};

let server: ReturnType<typeof serve> | undefined;
let stop: (() => void) | undefined;
beforeEach(() => patchApp({ ...NOBODYS, me: { id: "u1", username: "ada", role: "user" } as never }));
afterEach(() => {
  stop?.();
  closeChanges();
  server?.stop();
});

/** A stream that stays open. */
function endless(...texts: string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start: (to) => texts.forEach((text) => to.enqueue(new TextEncoder().encode(text))),
  });
  return new Response(body);
}

it("puts a changed thread to its place", () => {
  const threads = [row("c", 30), row("b", 20), row("a", 10)];
  const ids = (more: string, changed: ReturnType<typeof row>) =>
    insertThread(threads, more, changed).map((one) => one.id);
  expect(ids("", row("a", 40))).toEqual(["a", "c", "b"]);
  expect(ids("", row("b", 20, { title: "x" }))).toEqual(["c", "b", "a"]);
  expect(ids("", row("new", 5))).toEqual(["c", "b", "a", "new"]);
  expect(ids("cursor", row("new", 5))).toEqual(["c", "b", "a"]); // it is loaded with the older ones
});

it("reads the open thread when it has changed, and drops a deleted one", async () => {
  patchApp({
    thread: "th_1",
    threads: [row("th_1", 1)],
    conversations: { th_1: { ...openConversation(app.get()), last: 1 } },
  });
  server = serve({
    ...lists,
    "GET /events": () =>
      endless(
        event("thread", row("th_1", 4)),
        event("thread", row("th_2", 3)),
        event("thread_deleted", { thread_id: "th_2" }),
      ),
    "GET /threads/th_1": () => ({ ...row("th_1", 4), messages: [{ role: "user", content: "from elsewhere", seq: 1 }] }),
  });
  stop = applyChanges();
  openChanges("u1");
  await vi.waitFor(() => expect(openConversation(app.get()).items).toMatchObject([{ text: "from elsewhere" }]));
  expect([app.get().pushed, app.get().threads.map((one) => one.id)]).toEqual([true, ["th_1"]]);
  closeChanges();
  expect(app.get().pushed).toBe(false);
});

it("connects again after a break, and reads the lists when events may be lost", async () => {
  let times = 0;
  server = serve({
    ...lists,
    "GET /events": () => (times++ ? endless(event("resync", {})) : stream([event("agent_created", { agent_id: "a" })])),
  });
  const heard: string[] = [];
  const leave = onChange((change) => heard.push(change.event));
  stop = applyChanges();
  openChanges("u1");
  await vi.waitFor(() => expect(heard).toEqual(["agent_created", "lost", "resync"]));
  await vi.waitFor(() => expect(app.get().threads.map((one) => one.id)).toEqual(["th_1"]));
  leave();
});

it("tells apart the files of agents", async () => {
  server = serve({
    ...lists,
    "GET /events": () =>
      endless(...["other", "coder", ""].map((agent) => event("files", { agent_id: agent, thread_id: "" }))),
  });
  let count = 0;
  const leave = onFileChange("coder", () => count++);
  let all = 0;
  stop = onChange(() => all++);
  openChanges("u1");
  await vi.waitFor(() => expect(all).toBe(3));
  expect(count).toBe(2);
  leave();
});
