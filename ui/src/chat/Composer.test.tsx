import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { app, openConversation, NOBODYS, patchApp } from "../state/app";
import { followNothing } from "../state/runStream";
import { frame, serve } from "../testing/serve";
import { Composer } from "./Composer";

let server: ReturnType<typeof serve>;
beforeEach(() => {
  patchApp({
    ...NOBODYS,
    agent: "default",
    agents: [{ agent_id: "default", name: "wick", model: "demo", origin: "code", shared: true, hooks: ["skills"] }],
    me: { id: "u", username: "local", role: "admin" },
  });
  server = serve({
    "GET /threads": () => ({ threads: [], next: "" }),
    "GET /agents/default/skills": () => ({
      skills: [{ name: "slides", description: "Make slides", path: "", enabled: true }],
    }),
    "POST /agents/default/stream": () => [frame("done", { outcome: "completed" }, "3")],
  });
});
afterEach(() => (cleanup(), followNothing(), server.stop()));

const field = () => screen.getByLabelText<HTMLTextAreaElement>("Message");
const write = (value: string) => fireEvent.change(field(), { target: { value } });
const sent = () =>
  waitFor(() => expect(server.asked.some((one) => one.method === "POST")).toBe(true)).then(
    () => (server.asked.find((one) => one.method === "POST")!.body as { messages: unknown[] }).messages,
  );

it("sends with Enter and is empty then; Shift and Enter is a new line", async () => {
  render(<Composer />);
  write("hello");
  fireEvent.keyDown(field(), { key: "Enter", shiftKey: true });
  expect(field().value).toBe("hello");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(await sent()).toEqual([{ role: "user", content: "hello" }]);
  expect(field().value).toBe("");
});

it("does not send what is being composed, or nothing", () => {
  render(<Composer />);
  expect(screen.getByRole("button", { name: "Send" }).hasAttribute("disabled")).toBe(true);
  write("にほ");
  fireEvent.keyDown(field(), { key: "Enter", isComposing: true });
  expect(field().value).toBe("にほ");
});

it("offers skills after a slash, and asks for the one that is chosen", async () => {
  render(<Composer />);
  write("/sl");
  expect((await screen.findByRole("option")).textContent).toBe("/slides Make slides");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(field().value).toBe("/slides ");
  write("/slides about tea");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(await sent()).toEqual([{ role: "user", content: "Use the skill slides: about tea" }]);
});

it("takes files by paste, and lets them go again", async () => {
  render(<Composer />);
  fireEvent.paste(field(), {
    clipboardData: {
      files: [new File(["x"], "a.txt", { type: "text/plain" }), new File(["y"], "b.txt", { type: "text/plain" })],
    },
  });
  fireEvent.click(await screen.findByRole("button", { name: "Remove a.txt" }));
  fireEvent.click(screen.getByRole("button", { name: "Send" }));
  expect(await sent()).toEqual([
    { role: "user", content: [{ type: "file", data: btoa("y"), media_type: "text/plain", name: "b.txt" }] },
  ]);
});

it("keeps what is written in each thread", () => {
  render(<Composer />);
  write("for the new one");
  fireEvent.blur(field());
  patchApp({ thread: "th_9" });
  expect(app.get().drafts).toEqual({ "": "for the new one" });
});

it("stops and steers a running run", () => {
  patchApp({ thread: "th_1", conversations: { th_1: { ...openConversation(app.get()), run: "run_1" } } });
  render(<Composer />);
  expect([screen.getByRole("button", { name: "Stop" }), screen.getByRole("button", { name: "Steer" })].length).toBe(2);
  fireEvent.click(screen.getByRole("button", { name: "Stop" }));
  fireEvent.click(screen.getByRole("button", { name: "Stop" }));
  expect(server.asked.filter((one) => one.method === "POST").map((one) => one.path)).toEqual(["/runs/run_1/cancel"]);
});

describe("with another agent", () => {
  beforeEach(() => {
    const conversations = { th_1: { ...openConversation(app.get()), agent: "other" } };
    patchApp({ thread: "th_1", conversations, notices: [] });
    fireEvent.paste(render(<Composer />).getByLabelText("Message"), {
      clipboardData: { files: [new File(["x"], "a.txt", { type: "text/plain" })] },
    });
    write("read this");
  });

  it("keeps the message and its attachments if the fork fails", async () => {
    await screen.findByRole("button", { name: "Remove a.txt" });
    fireEvent.click(screen.getByRole("button", { name: "Send" }));
    await waitFor(() => expect(app.get().notices.length).toBe(1));
    await waitFor(() => expect([field().value, field().readOnly]).toEqual(["read this", false]));
    expect(screen.getByRole("button", { name: "Remove a.txt" })).toBeTruthy();
  });

  it("sends the message to the fork", async () => {
    server.stop();
    server = serve({
      "POST /threads/th_1/fork": () => ({ id: "th_2" }),
      "GET /threads/th_2": () => ({ id: "th_2", agent_id: "default", messages: [] }),
      "POST /agents/default/stream": () => [frame("done", { outcome: "completed" }, "3")],
    });
    await screen.findByRole("button", { name: "Remove a.txt" });
    fireEvent.click(screen.getByRole("button", { name: "Send" }));
    await waitFor(() => expect(server.asked.some((one) => one.path === "/agents/default/stream")).toBe(true));
    const { body } = server.asked.find((one) => one.path === "/agents/default/stream")!;
    expect(body).toMatchObject({ thread_id: "th_2", messages: [{ role: "user" }] });
    expect([app.get().drafts["th_1"], app.get().attached["th_1"]]).toEqual([undefined, []]);
  });
});
