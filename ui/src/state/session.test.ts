import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { serve } from "../testing/serve";
import { app, openConversation, NOBODYS, patchApp } from "./app";
import { startSession, pollOnce, signIn, signOut } from "./session";
import { followNothing } from "./runStream";
import { openThread, removeThread } from "./threads";

const thread = (id: string, last: number, more: object = {}) => ({
  id,
  title: id,
  agent_id: "coder",
  meta: {},
  created: 0,
  updated: last,
  last,
  asking: 0,
  ...more,
});
const said = (text: string) => [{ role: "user", content: text, seq: 1 }];
const ME = { id: "u1", username: "ada", role: "user" };
const lists = (threads: unknown[] = []) => ({
  "GET /agents/": () => ({ agents: [{ agent_id: "coder", name: "coder" }] }),
  "GET /threads": () => ({ threads, next: "" }),
  "GET /approvals": () => ({ approvals: [] }),
});
const refused = () => Response.json({ error: { code: "unauthorized", message: "sign in first" } }, { status: 401 });

let server: ReturnType<typeof serve> | undefined;
beforeEach(() => {
  patchApp({ ...NOBODYS, me: undefined, notices: [], online: true });
  history.replaceState(null, "", "/");
});
afterEach(() => {
  followNothing();
  server?.stop();
});

it("trades the ticket of a link, once, and keeps it out of the address", async () => {
  history.replaceState(null, "", "/#ticket=one-use");
  server = serve({ ...lists(), "POST /auth/session": () => ME });
  await startSession();
  expect([server.asked[0]?.body, location.hash, app.get().me?.username, app.get().agent]).toEqual([
    { ticket: "one-use" },
    "",
    "ada",
    "coder",
  ]);
});

it("opens the thread that the address names", async () => {
  history.replaceState(null, "", "/#thread=th_1");
  server = serve({
    ...lists(),
    "GET /auth/me": () => ME,
    "GET /threads/th_1": () => ({ ...thread("th_1", 1), messages: said("hello") }),
  });
  await startSession();
  expect([app.get().thread, openConversation(app.get()).items.length]).toEqual(["th_1", 1]);
});

it("shows the sign-in without a signed-in user", async () => {
  server = serve({ "GET /auth/me": refused });
  await startSession();
  expect([app.get().me, app.get().notices]).toEqual([null, []]);
});

it("says why a token was refused", async () => {
  server = serve({
    "POST /auth/session": () =>
      Response.json({ error: { code: "forbidden", message: "this token is not known" } }, { status: 403 }),
  });
  await signIn("wrong");
  expect(app.get().notices.map((one) => one.text)).toEqual(["this token is not known"]);
});

it("removes all data of the user at sign-out", async () => {
  server = serve({ ...lists([thread("th_1", 1)]), "POST /auth/session": () => ME, "DELETE /auth/session": () => null });
  await signIn("token");
  patchApp({ thread: "th_1", drafts: { th_1: "secret" } });
  await signOut();
  expect(app.get()).toMatchObject({ ...NOBODYS, me: null });
});

it("loads messages from other clients", async () => {
  patchApp({
    me: ME as never,
    thread: "th_1",
    conversations: { th_1: { ...openConversation(app.get()), last: 1, part: Infinity } },
  });
  server = serve({
    ...lists([thread("th_1", 4)]),
    "GET /threads/th_1": () => ({ ...thread("th_1", 4), messages: said("from elsewhere") }),
  });
  await pollOnce();
  expect(openConversation(app.get()).items).toMatchObject([{ text: "from elsewhere" }]);
});

it("detects new questions, a stopped server and an expired session", async () => {
  patchApp({ me: ME as never });
  server = serve({
    ...lists([thread("th_1", 4, { asking: 1 })]),
    "GET /approvals": () => ({ approvals: [{ id: "a", thread_id: "th_1", agent_id: "", title: "", question: "?" }] }),
  });
  await pollOnce();
  expect(app.get().approvals.length).toBe(1);
  server.stop();
  server = serve({ "GET /threads": () => Promise.reject(new TypeError("refused")) });
  await pollOnce();
  expect([app.get().online, app.get().me !== null]).toEqual([false, true]);
  server.stop();
  server = serve({ "GET /threads": refused });
  await pollOnce();
  expect(app.get().me).toBeNull();
});

it("opens a new thread if the requested one is missing or deleted", async () => {
  patchApp({ me: ME as never });
  server = serve({ ...lists(), "DELETE /threads/th_2": () => null });
  await openThread("th_1");
  expect([app.get().thread, app.get().notices.length, app.get().opening]).toEqual(["", 1, ""]);
  patchApp({ thread: "th_2", threads: [thread("th_2", 1)] });
  await removeThread("th_2");
  await vi.waitFor(() => expect([app.get().thread, app.get().threads]).toEqual(["", []]));
});

it("keeps a thread open that cannot be read at the moment, and says why", async () => {
  patchApp({ me: ME as never });
  server = serve({ ...lists(), "GET /threads/th_1": () => new Response("oh", { status: 500 }) });
  await openThread("th_1");
  expect([app.get().thread, app.get().trouble, app.get().notices]).toEqual([
    "th_1",
    expect.stringMatching(/^The server returned status 500/),
    [],
  ]);
});

it("goes back to a thread with the agent that it is of", async () => {
  patchApp({ me: ME as never, agent: "other" });
  server = serve({ ...lists(), "GET /threads/th_1": () => ({ ...thread("th_1", 1), messages: said("hello") }) });
  await openThread("th_1");
  patchApp({ agent: "other", thread: "th_2" });
  await openThread("th_1");
  expect(app.get().agent).toBe("coder");
});

it("notices that the open thread was deleted elsewhere, and keeps what was being written", async () => {
  let rows = [thread("th_1", 1)];
  patchApp({ me: ME as never, drafts: { th_1: "half" } });
  server = serve({
    ...lists(),
    "GET /threads": () => ({ threads: rows, next: "" }),
    "GET /threads/th_1": () =>
      rows.length
        ? { ...rows[0], messages: said("hello") }
        : Response.json({ error: { code: "not_found", message: "gone" } }, { status: 404 }),
  });
  await openThread("th_1");
  await pollOnce();
  rows = [];
  await pollOnce();
  expect([app.get().thread, app.get().drafts[""], app.get().notices.length]).toEqual(["", "half", 1]);
});

it("does not ask for a token because the server is not well", async () => {
  vi.useFakeTimers();
  let well = false;
  server = serve({ ...lists(), "GET /auth/me": () => (well ? ME : new Response("", { status: 503 })) });
  await startSession();
  expect(app.get().me).toBeUndefined();
  well = true;
  await vi.advanceTimersByTimeAsync(3_000);
  vi.useRealTimers();
  expect(app.get().me?.username).toBe("ada");
});
