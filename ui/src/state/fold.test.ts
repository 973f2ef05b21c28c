import { describe, expect, it } from "vitest";

import { type Conversation, EMPTY, type Event, foldFrame, toUserItem } from "./fold";

type Frame = [string, Event];

const RUN = "run_1";
const event = (name: string, data: Record<string, unknown> = {}, more: Partial<Event> = {}): Event => ({
  event: name,
  run_id: RUN,
  data,
  ...more,
});

const TALK: Frame[] = [
  ["2", event("on_user_message", { message: { role: "user", content: "list them" } })],
  ["", event("on_chat_model_start", { step: 1 }, { name: "demo" })],
  ["", event("on_chat_model_stream", { delta: "I will ", kind: "text" })],
  ["", event("on_chat_model_stream", { delta: "look", kind: "text" })],
  ["", event("on_chat_model_stream", { delta: '{"path"', kind: "tool_args", index: 0 })],
  [
    "3.1",
    event("on_chat_model_end", {
      message: {
        role: "assistant",
        content: "I will look",
        tool_calls: [{ id: "c1", name: "ls", args: { path: "." } }],
      },
    }),
  ],
  ["3", event("on_tool_start", { call_id: "c1", args: { path: "." } }, { name: "ls" })],
  [
    "5",
    event("on_approval_request", {
      id: "ask_1",
      question: "May ls be used?",
      call_id: "c1",
      tool: "ls",
      args: { path: "." },
    }),
  ],
  ["6", event("on_approval_response", { id: "ask_1", allowed: true })],
  ["", event("on_tool_stream", { call_id: "c1", delta: "a.txt" })],
  [
    "8",
    event(
      "on_tool_end",
      { call_id: "c1", output: "a.txt", why: [{ hook: "permissions", position: "guard", verdict: "ask" }] },
      { name: "ls" },
    ),
  ],
  ["9", event("on_state", { todos: [{ id: "1", title: "look", status: "done" }] })],
  ["", event("on_chat_model_start", { step: 2 })],
  ["", event("on_chat_model_stream", { delta: "There is a.txt", kind: "text" })],
  ["10", event("on_chat_model_end", { message: { role: "assistant", content: "There is a.txt" } })],
  ["11", event("done", { outcome: "completed", reason: "completed" })],
];

const told = (frames: Frame[], from: Conversation = EMPTY) =>
  frames.reduce((old, [id, one]) => foldFrame(old, id, one, 0), from);

describe("a conversation", () => {
  it("is what its frames add up to", () => {
    const { items, values, run } = told(TALK);
    expect(items.map((item) => [item.kind, "text" in item ? item.text : ""])).toEqual([
      ["user", "list them"],
      ["reply", "I will look"],
      ["reply", "There is a.txt"],
    ]);
    expect(items[1]).toMatchObject({
      calls: [{ id: "c1", name: "ls", state: "done", output: "a.txt", live: "a.txt" }],
    });
    expect([values["todos"], run]).toEqual([[{ id: "1", title: "look", status: "done" }], ""]);
  });

  it("is the same wherever the connection broke and whatever came twice", () => {
    const whole = told(TALK);
    const durable = TALK.filter(([id]) => id);
    const bare = (one: Conversation) => ({
      ...one,
      items: one.items.map((item) =>
        item.kind === "reply" ? { ...item, calls: item.calls.map((call) => ({ ...call, live: "" })) } : item,
      ),
    });
    for (let cut = 0; cut <= TALK.length; cut++) {
      const seen = told(TALK.slice(0, cut));
      expect(bare(told(durable, seen))).toEqual(bare(whole));
    }
  });

  it("takes back what was streamed when a reply begins anew", () => {
    const { items } = told([
      ...TALK.slice(1, 4),
      ["", event("on_chat_model_restart", { content: "" })],
      ["", event("on_chat_model_stream", { delta: "New", kind: "text" })],
    ]);
    expect(items).toMatchObject([{ text: "New", open: true }]);
  });

  it("shows a subagent's work below the call that it is for", () => {
    const child = (name: string, data: Record<string, unknown>): Event => ({
      event: name,
      run_id: "run_2",
      name: "helper",
      data,
    });
    const { items } = told([
      [
        "3.1",
        event("on_chat_model_end", { message: { content: "", tool_calls: [{ id: "c1", name: "task", args: {} }] } }),
      ],
      ["", child("on_subagent_start", { parent_id: RUN, call_id: "c1", prompt: "look it up" })],
      ["", child("on_chat_model_start", { step: 1 })],
      ["", child("on_chat_model_stream", { delta: "found", kind: "text" })],
      ["", child("on_subagent_end", { parent_id: RUN, call_id: "c1", outcome: "completed", text: "found" })],
    ]);
    expect(items).toMatchObject([
      {
        calls: [
          {
            id: "c1",
            child: {
              agent: "helper",
              prompt: "look it up",
              outcome: "completed",
              text: "found",
              items: [{ text: "found" }],
            },
          },
        ],
      },
    ]);
  });

  it("says how a run ended that did not complete", () => {
    expect(told([["4", event("done", { outcome: "stopped", reason: "step limit" })]]).items).toMatchObject([
      { kind: "ended", reason: "step limit" },
    ]);
    expect(told([["4", event("error", { error: { code: "model_error", message: "no" } })]]).items).toMatchObject([
      { kind: "ended", error: "no" },
    ]);
  });

  it("ignores a subagent whose beginning was not seen, and keeps the run", () => {
    const child = (name: string, data: Record<string, unknown>): Event => ({ event: name, run_id: "run_2", data });
    const before = told(TALK.slice(0, 7));
    expect(
      told(
        [
          ["", child("on_chat_model_start", { step: 1 })],
          ["", child("on_chat_model_stream", { delta: "?", kind: "text" })],
        ],
        before,
      ),
    ).toEqual(before);
  });

  it("shows the work of a subagent's subagent below the call that it is for", () => {
    const of = (run: string, name: string, data: Record<string, unknown>): Event => ({
      event: name,
      run_id: run,
      name: "helper",
      data,
    });
    const reply = { message: { content: "", tool_calls: [{ id: "c2", name: "task", args: {} }] } };
    const { items, run } = told([
      [
        "3",
        event("on_chat_model_end", { message: { content: "", tool_calls: [{ id: "c1", name: "task", args: {} }] } }),
      ],
      ["", of("run_2", "on_subagent_start", { call_id: "c1", prompt: "a" })],
      ["", of("run_2", "on_chat_model_end", reply)],
      ["", of("run_3", "on_subagent_start", { call_id: "c2", prompt: "b" })],
      ["", of("run_3", "on_chat_model_stream", { delta: "deep", kind: "text" })],
    ]);
    expect(items).toMatchObject([
      {
        calls: [
          { child: { prompt: "a", items: [{ calls: [{ child: { prompt: "b", items: [{ text: "deep" }] } }] }] } },
        ],
      },
    ]);
    expect(run).toBe(RUN);
  });

  it("keeps a map item by item", () => {
    const { values } = told([
      ["2", event("on_state", { files: { a: "1", b: "2" } })],
      ["3", event("on_state", { files: { b: "3", a: null } })],
      ["4", event("on_state", { todos: [] })],
    ]);
    expect(values).toEqual({ files: { b: "3" }, todos: [] });
  });

  it("removes the note of a waiting run when it continues", () => {
    const paused = told([...TALK.slice(0, 8), ["7", event("done", { outcome: "interrupted", reason: "paused" })]]);
    expect(paused.items.at(-1)).toMatchObject({ kind: "ended", outcome: "interrupted" });
    expect(
      told([["8", event("on_tool_end", { call_id: "c1", output: "a.txt" })]], paused).items.map((item) => item.kind),
    ).toEqual(["user", "reply"]);
  });

  it("shows what was sent from here only once when it is heard", () => {
    const sent = { ...told(TALK.slice(1, 4)), pending: [toUserItem(0, "wait", "", "sent-1")] };
    const { items, pending } = told(
      [["4", event("on_user_message", { message: { role: "user", content: "wait" } })]],
      sent,
    );
    expect([items.map((item) => "text" in item && item.text), pending]).toEqual([["I will look", "wait"], []]);
  });
});
