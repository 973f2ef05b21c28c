import { afterEach, beforeEach, expect, it } from "vitest";

import { app, NOBODYS, patchApp, setDraft } from "./app";
import { saveDrafts, loadDrafts } from "./drafts";

const ME = { id: "u1", username: "ada", role: "user" as const };
let stop: () => void = () => undefined;
beforeEach(() => {
  patchApp({ ...NOBODYS, me: ME });
  stop = saveDrafts();
});
afterEach(() => (stop(), sessionStorage.clear()));

it("keeps what is written for who wrote it", () => {
  setDraft("th_1", "half a thought");
  setDraft("edit th_1 4", "");
  expect([loadDrafts("u1"), loadDrafts("u2")]).toEqual([{ th_1: "half a thought", "edit th_1 4": "" }, {}]);
});

it("keeps nothing of what was sent, and nothing for who comes next", () => {
  setDraft("th_1", "half a thought");
  setDraft("th_1", "");
  expect([app.get().drafts, loadDrafts("u1"), sessionStorage.length]).toEqual([{}, {}, 0]);
  setDraft("th_1", "more");
  patchApp({ ...NOBODYS, me: null });
  expect(sessionStorage.length).toBe(0);
});

it("is not stopped by what it cannot read", () => {
  sessionStorage.setItem("wick-drafts", "{broken");
  expect(loadDrafts("u1")).toEqual({});
});
