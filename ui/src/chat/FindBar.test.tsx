import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it } from "vitest";

import { app, NOBODYS, patchApp } from "../state/app";
import { serve } from "../testing/serve";
import { FindBar } from "./FindBar";
import { findRanges } from "./highlights";

let server: ReturnType<typeof serve>;
const goals: number[] = [];
const stop = app.subscribe(() => app.get().goal && goals.push(app.get().goal) && patchApp({ goal: 0 }));
beforeEach(() => {
  patchApp({ ...NOBODYS, thread: "th_1", finds: true });
  goals.length = 0;
  server = serve({
    "GET /threads/th_1/search": ({ path }) => ({
      matches: path.endsWith("otter") ? [2, 5, 9].map((seq) => ({ seq, role: "user", text: "otter" })) : [],
    }),
  });
});
afterEach(() => (cleanup(), server.stop()));

const type = (text: string) => fireEvent.change(screen.getByLabelText("Text to find"), { target: { value: text } });
const press = (key: string, more = {}) => fireEvent.keyDown(screen.getByLabelText("Text to find"), { key, ...more });
const status = (text: string) => waitFor(() => expect(screen.getByRole("status").textContent).toBe(text));

it("goes to each match and around, by keyboard", async () => {
  render(<FindBar thread="th_1" />);
  type("otter");
  await status("1 of 3");
  press("Enter");
  await status("2 of 3");
  press("Enter");
  press("Enter");
  await status("1 of 3");
  press("Enter", { shiftKey: true });
  await status("3 of 3");
  expect([goals[0], goals.at(-1)]).toEqual([2, 9]);
  type("beaver");
  await status("No matches");
  press("Escape");
  expect(app.get().finds).toBe(false);
  stop();
});

it("finds the places of a text in an element", () => {
  const element = document.createElement("div");
  element.innerHTML = "<p>An Otter and an <b>otter</b>.</p>";
  expect(findRanges(element, "otter").map(String)).toEqual(["Otter", "otter"]);
  expect(findRanges(element, "ott er")).toEqual([]);
});
