import { describe, expect, it } from "vitest";

import type { ThreadDetail } from "../api";
import { type Conversation, EMPTY, type Event, foldFrame, toUserItem } from "./fold";
import { toConversation, mergeThread } from "./threadItems";

const message = (seq: number, role: "user" | "assistant" | "tool", content: string, more: object = {}) => ({
  role,
  content,
  seq,
  ...more,
});

const THREAD: ThreadDetail = {
  id: "th_1", title: "t", agent_id: "default", meta: {}, created: 0, updated: 0, last: 9,
  messages: [
    message(1, "user", "list them", { run: "run_1" }),
    message(3, "assistant", "", { run: "run_1", tool_calls: [{ id: "c", name: "ls", args: { path: "." } }] }),
    message(5, "tool", "a.txt", { tool_call_id: "c", ms: 12 }),
    message(6, "assistant", "There is a.txt", { run: "run_1" }),
  ],
}; // prettier-ignore

const told = (frames: [string, Event][], from: Conversation) =>
  frames.reduce((old, [id, one]) => foldFrame(old, id, one, 1_000), from);
const event = (name: string, data: Record<string, unknown>): Event => ({ event: name, run_id: "run_1", data });

const SEEN = told(
  [
    [
      "3.1",
      event("on_chat_model_end", {
        message: { content: "", tool_calls: [{ id: "c", name: "ls", args: { path: "." } }] },
      }),
    ],
    ["3", event("on_tool_start", { call_id: "c", args: { path: "." } })],
    ["", event("on_tool_stream", { call_id: "c", delta: "a." })],
    [
      "5",
      event("on_tool_end", { call_id: "c", output: "a.txt", why: [{ hook: "h", position: "guard", verdict: "pass" }] }),
    ],
    ["6", event("on_chat_model_end", { message: { content: "There is a.txt" } })],
    ["9", event("done", { outcome: "completed" })],
  ],
  { ...EMPTY, run: "run_1", items: [toUserItem(0, "list them", "", "sent-1")] },
);

describe("a thread that is kept", () => {
  it("is shown with its calls and their results", () => {
    const { items, last, run } = toConversation(THREAD);
    expect(items.map((item) => [item.kind, item.key])).toEqual([
      ["user", "m1"],
      ["reply", "m3"],
      ["reply", "m6"],
    ]);
    expect(items[1]).toMatchObject({ run: "run_1", calls: [{ state: "done", output: "a.txt", ms: 12 }] });
    expect([last, run]).toEqual([9, ""]);
  });

  it("has the labels of the user's messages, of replies and of results", () => {
    const label = { trusted: false, private: ["mail"], sources: [] };
    const messages = THREAD.messages.map((one) => (one.role === "assistant" && !one.content ? one : { ...one, label }));
    const { items } = toConversation({ ...THREAD, messages });
    expect(items[0]).toMatchObject({ kind: "user", label });
    expect(items[1]).toMatchObject({ kind: "reply", calls: [{ label }] });
    expect(items[2]).toMatchObject({ kind: "reply", label });
    expect(toConversation(THREAD).items[0]).not.toHaveProperty("label");
  });

  it("shows running calls as running", () => {
    const going = toConversation({ ...THREAD, run_id: "run_1", last: 3, messages: THREAD.messages.slice(0, 2) });
    expect(going.items[1]).toMatchObject({ calls: [{ state: "running" }] });
  });

  it("says how runs ended that did not complete, where they did", () => {
    const ends = [
      {
        run: "run_0",
        seq: 2,
        at: 0,
        outcome: "failed",
        reason: "error",
        error: { code: "model_error", message: "no key" },
      },
      { run: "run_1", seq: 8, at: 0, outcome: "completed", reason: "completed" },
    ];
    const { items } = toConversation({ ...THREAD, ends });
    expect(items.map((item) => item.kind)).toEqual(["user", "ended", "reply", "reply"]);
    expect(items[1]).toMatchObject({ error: "no key" });
  });

  it("gives a result to the call before it, when ids come twice", () => {
    const twice = [
      ...THREAD.messages,
      message(7, "assistant", "", { tool_calls: [{ id: "c", name: "ls", args: {} }] }),
      message(8, "tool", "b.txt", { tool_call_id: "c" }),
    ];
    const replies = toConversation({ ...THREAD, messages: twice }).items.filter((item) => item.kind === "reply");
    expect(replies.flatMap((reply) => reply.calls.map((call) => call.output))).toEqual(["a.txt", "b.txt"]);
  });
});

describe("what was seen and what is kept", () => {
  it("become one, without showing anything twice", () => {
    const both = mergeThread(SEEN, THREAD);
    expect(both.items.map((item) => item.key)).toEqual(["m1", "m3", "m6"]);
    expect(both.items[1]).toMatchObject({
      calls: [{ live: "a.", ms: 12, began: 1_000, ended: 1_000, why: [{ hook: "h" }] }],
    });
  });

  it("do not go back in time", () => {
    expect(mergeThread(SEEN, { ...THREAD, last: 4, messages: [] })).toBe(SEEN);
  });

  it("keep what is being written, and what waits to be heard", () => {
    const writing = told([["", event("on_chat_model_stream", { delta: "And", kind: "text" })]], {
      ...SEEN,
      run: "run_1",
      pending: [toUserItem(0, "wait", "", "sent-2")],
    });
    const both = mergeThread(writing, { ...THREAD, run_id: "run_1", queued: 1 });
    expect(both.items.at(-1)).toMatchObject({ open: true, text: "And" });
    expect(both.pending.map((one) => one.text)).toEqual(["wait"]);
    const there = { position: 4, message: { role: "user" as const, content: "wait" } };
    expect(mergeThread(writing, { ...THREAD, unheard: [there] }).pending.map((one) => one.key)).toEqual(["q4"]);
    expect(mergeThread({ ...writing, pending: [toUserItem(0, "heard", "", "q3")] }, THREAD).pending).toEqual([]);
  });
});
