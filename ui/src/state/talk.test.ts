import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { frame, serve, stream } from "../testing/serve";
import { app, openConversation, NOBODYS, patchApp } from "./app";
import { followNothing, isFollowed } from "./runStream";
import { answerQuestion, retryRun, sendMessage, sendNothing } from "./talk";
import { newThread } from "./threads";

const ME = { id: "u", username: "local", role: "admin" as const };
const DETAIL = {
  id: "th_1",
  title: "t",
  agent_id: "default",
  meta: {},
  created: 0,
  updated: 0,
  last: 0,
  run_id: "",
  queued: 0,
};
const kept = (last: number, messages: unknown[], more: object = {}) => ({ ...DETAIL, last, messages, ...more });
const HELLO = [
  { role: "user", content: "hello", seq: 1 },
  { role: "assistant", content: "Hi there", seq: 3, run: "run_1" },
];
const LISTS = { "GET /threads": () => ({ threads: [], next: "" }), "GET /approvals": () => ({ approvals: [] }) };
const DONE = frame("done", { outcome: "completed", reason: "completed" }, "5");
const shown = () => openConversation(app.get()).items.map((item) => ("text" in item ? item.text : item.kind));

let server: ReturnType<typeof serve> | undefined;
beforeEach(() => {
  patchApp({ ...NOBODYS, me: ME, agent: "default", notices: [], online: true });
  newThread();
});
afterEach(() => {
  followNothing();
  sendNothing();
  server?.stop();
});

it("shows a sent message once, also if it is in the stream and in the thread", async () => {
  server = serve({
    ...LISTS,
    "GET /threads/th_1": () => kept(5, HELLO),
    "POST /agents/default/stream": () => [
      frame("on_chat_model_stream", { delta: "Hi ", kind: "text" }),
      frame("on_chat_model_end", { message: { content: "Hi there" } }, "3"),
      DONE,
    ],
  });
  await sendMessage({ role: "user", content: "hello" });
  await vi.waitFor(() => expect(openConversation(app.get()).items.map((item) => item.key)).toEqual(["m1", "m3"]));
  expect(shown()).toEqual(["hello", "Hi there"]);
  expect([app.get().thread, openConversation(app.get()).run, openConversation(app.get()).pending]).toEqual([
    "th_1",
    "",
    [],
  ]);
});

it("resumes after the last received frame when the connection breaks", async () => {
  const begun = frame(
    "on_chat_model_end",
    { message: { content: "", tool_calls: [{ id: "c", name: "ls", args: {} }] } },
    "3.1",
  );
  server = serve({
    ...LISTS,
    "GET /threads/th_1": () => kept(5, [], { run_id: "" }),
    "POST /agents/default/stream": () => [begun],
    "GET /runs/run_1/events": () => [
      begun,
      frame("on_tool_start", { call_id: "c" }, "3"),
      frame("on_chat_model_end", { message: { content: "Hi there" } }, "4"),
      DONE,
    ],
  });
  await sendMessage({ role: "user", content: "hello" });
  await vi.waitFor(() => expect(server!.asked.some((one) => one.path === "/threads/th_1")).toBe(true));
  const again = server.asked.find((one) => one.path === "/runs/run_1/events");
  expect(again?.headers["Last-Event-ID"]).toBe("3.1");
});

it("asks under the same key when the answer got lost", async () => {
  let lost = true;
  server = serve({
    ...LISTS,
    "GET /threads/th_1": () => kept(5, HELLO),
    "POST /agents/default/stream": () => (lost ? ((lost = false), Promise.reject(new TypeError("gone"))) : [DONE]),
  });
  await sendMessage({ role: "user", content: "hello" });
  const keys = server.asked.filter((one) => one.method === "POST").map((one) => one.headers["Idempotency-Key"]);
  expect([keys.length, new Set(keys).size]).toEqual([2, 1]);
});

it("gives back what the server refused", async () => {
  server = serve({
    ...LISTS,
    "POST /agents/default/stream": () =>
      Response.json({ error: { code: "invalid", message: "no such thing" } }, { status: 400 }),
  });
  await sendMessage({
    role: "user",
    content: [
      { type: "text", text: "hello" },
      { type: "file", name: "a.txt", data: "YQ==" },
    ],
  });
  expect([
    app.get().drafts[""],
    app.get().attached[""]?.[0]?.name,
    shown(),
    openConversation(app.get()).pending,
  ]).toEqual(["hello", "a.txt", [], []]);
  expect(app.get().notices.map((one) => one.text)).toEqual(["no such thing"]);
});

it("steers a running run, and shows the message once it is delivered", async () => {
  let hear: (frames: string) => void = () => undefined;
  const body = new ReadableStream<Uint8Array>({
    start: (to) => void (hear = (text) => to.enqueue(new TextEncoder().encode(text))),
  });
  server = serve({
    ...LISTS,
    "POST /agents/default/stream": () =>
      new Response(body, { headers: { "X-Run-Id": "run_1", "X-Thread-Id": "th_1" } }),
    "POST /threads/th_1/messages": () => ({ thread_id: "th_1", run_id: "run_1", position: 2 }),
  });
  await sendMessage({ role: "user", content: "hello" });
  await sendMessage({ role: "user", content: "in French" });
  expect([shown(), openConversation(app.get()).pending.map((one) => one.text)]).toEqual([["hello"], ["in French"]]);
  hear(frame("on_user_message", { message: { role: "user", content: "in French" } }, "4"));
  await vi.waitFor(() => expect(shown()).toEqual(["hello", "in French"]));
  expect(openConversation(app.get()).pending).toEqual([]);
});

it("answers a question and follows the continued run", async () => {
  const asked = { id: "ask_1", thread_id: "th_1", agent_id: "default", title: "t", question: "May it?" };
  patchApp({
    thread: "th_1",
    approvals: [asked],
    conversations: { th_1: { ...openConversation(app.get()), last: 2, part: Infinity } },
  });
  server = serve({
    ...LISTS,
    "POST /approvals/ask_1": () => ({ id: "ask_1", thread_id: "th_1", choice: "deny" }),
    "GET /threads/th_1": () =>
      server!.asked.some((one) => one.path.startsWith("/runs")) ? kept(5, HELLO) : kept(2, [], { run_id: "run_1" }),
    "GET /runs/run_1/events": () =>
      stream([frame("on_chat_model_end", { message: { content: "Then not" } }, "3"), DONE]),
  });
  await answerQuestion(asked, { choice: "deny", words: "no" });
  expect(server.asked[0]).toMatchObject({ body: { choice: "deny", words: "no", thread_id: "th_1" } });
  expect(app.get().approvals).toEqual([]);
  await vi.waitFor(() => expect(shown()).toEqual(["hello", "Hi there"]));
});

it("retries a message from its place, with its attachments", async () => {
  patchApp({ thread: "th_1" });
  server = serve({
    ...LISTS,
    "POST /threads/th_1/rewind": () => kept(0, []),
    "GET /threads/th_1": () => kept(5, HELLO),
    "POST /agents/default/stream": () => [DONE],
  });
  await retryRun(
    {
      kind: "user",
      key: "m4",
      seq: 4,
      text: "look",
      by: "",
      parts: [{ type: "image", data: "YQ==", media_type: "image/png" }],
    },
    "look again",
  );
  expect(server.asked[0]).toMatchObject({ path: "/threads/th_1/rewind", body: { to: 3 } });
  expect(server.asked[1]).toMatchObject({
    body: {
      messages: [
        {
          content: [
            { type: "text", text: "look again" },
            { type: "image", data: "YQ==", media_type: "image/png" },
          ],
        },
      ],
    },
  });
});

it("sends messages from before the thread exists to one thread, in order", async () => {
  let began: (answer: Response) => void = () => undefined;
  server = serve({
    ...LISTS,
    "GET /threads/th_1": () =>
      kept(1, [], { run_id: "run_1", unheard: [{ position: 2, message: { role: "user", content: "and" } }] }),
    "POST /agents/default/stream": () => new Promise((done) => (began = done)),
    "POST /threads/th_1/messages": () => ({ thread_id: "th_1", run_id: "run_1", position: 2 }),
  });
  const both = [sendMessage({ role: "user", content: "hello" }), sendMessage({ role: "user", content: "and" })];
  await vi.waitFor(() => expect(server!.asked.some((one) => one.method === "POST")).toBe(true));
  began(new Response(new ReadableStream(), { headers: { "X-Run-Id": "run_1", "X-Thread-Id": "th_1" } }));
  await Promise.all(both);
  const posts = server.asked.filter((one) => one.method === "POST").map((one) => one.path);
  expect(posts).toEqual(["/agents/default/stream", "/threads/th_1/messages"]);
  expect([app.get().thread, shown(), openConversation(app.get()).pending.map((one) => one.key)]).toEqual([
    "th_1",
    ["hello"],
    ["q2"],
  ]);
});

it("gives back what was refused before what was written since", async () => {
  server = serve({
    ...LISTS,
    "POST /agents/default/stream": () => Response.json({ error: { code: "invalid", message: "no" } }, { status: 400 }),
  });
  const sent = sendMessage({ role: "user", content: "first" });
  patchApp({ drafts: { "": "second" } });
  await sent;
  expect(app.get().drafts[""]).toBe("first\n\nsecond");
});

it("asks again where the server has too much to do", async () => {
  let busy = true;
  server = serve({
    ...LISTS,
    "GET /threads/th_1": () => kept(5, HELLO),
    "POST /agents/default/stream": () => (busy ? ((busy = false), new Response("", { status: 429 })) : [DONE]),
  });
  await sendMessage({ role: "user", content: "hello" });
  expect([app.get().thread, app.get().notices, app.get().online]).toEqual(["th_1", [], true]);
});

it("follows only what is looked at", async () => {
  const silent = () => new Response(new ReadableStream(), { headers: { "X-Run-Id": "run_1", "X-Thread-Id": "th_1" } });
  server = serve({ ...LISTS, "POST /agents/default/stream": silent });
  await sendMessage({ role: "user", content: "hello" });
  expect(isFollowed("th_1")).toBe(true);
  newThread();
  expect(isFollowed("th_1")).toBe(false);
});
