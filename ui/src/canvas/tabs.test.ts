import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { app, patch } from "../state/app";
import { serveFiles as serve } from "../testing/files";
import { moved, refresh, save, saveAs, settle } from "./keeping";
import { openFile, openText } from "./open";
import { canvas, change, close, isChanged, redo, type Tab, undo } from "./tabs";
import { versionsOf } from "./versions";

beforeEach(() => {
  patch({ agent: "coder", thread: "", panel: null });
  canvas.set(() => ({ tabs: [], active: "" }));
});
afterEach(() => {
  stop();
  vi.unstubAllGlobals();
});

let stop = () => {};

function serveFiles(first: Record<string, string> = {}): { files: Map<string, string> } {
  const served = serve(first);
  stop = served.stop;
  return served;
}

const tab = (): Tab => canvas.get().tabs.find((one) => one.id === canvas.get().active)!;

it("opens a file, is changed, and saves it", async () => {
  const { files } = serveFiles({ "a.py": "x = 1\n" });
  await openFile("./a.py");
  expect([tab().name, tab().text, tab().kind, tab().view, app.get().panel]).toEqual(["a.py", "x = 1\n", "code", "code", "canvas"]);
  change(tab().id, "x = 2\n");
  expect(isChanged(tab())).toBe(true);
  expect(await save(tab().id)).toBe(true);
  expect(files.get("a.py")).toBe("x = 2\n");
  expect(isChanged(tab())).toBe(false);
  expect(versionsOf(tab()).map((one) => one.text)).toEqual(["x = 1\n"]);
});

it("opens a file once", async () => {
  serveFiles({ "a.py": "1", "b.py": "2" });
  await openFile("a.py");
  await openFile("b.py");
  await openFile("a.py");
  expect(canvas.get().tabs.map((one) => one.name)).toEqual(["a.py", "b.py"]);
  expect(tab().name).toBe("a.py");
});

it("says why a file cannot be opened", async () => {
  serveFiles();
  await openFile("none.py");
  expect([tab().state, tab().problem]).toEqual(["failed", "there is no file none.py"]);
});

it("takes what others wrote, and remembers what was there", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  files.set("a.py", "two");
  await refresh(tab().id);
  expect([tab().text, tab().versions]).toEqual(["two", ["one"]]);
});

it("does not write over what others wrote meanwhile", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  change(tab().id, "mine");
  files.set("a.py", "theirs");
  expect(await save(tab().id)).toBe(false);
  expect([files.get("a.py"), tab().theirs, tab().text]).toEqual(["theirs", "theirs", "mine"]);
  settle(tab().id, "mine");
  expect(await save(tab().id)).toBe(true);
  expect(files.get("a.py")).toBe("mine");
});

it("takes theirs when that is wanted, and can go back", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  change(tab().id, "mine");
  files.set("a.py", "theirs");
  await refresh(tab().id);
  settle(tab().id, "theirs");
  expect([tab().text, isChanged(tab())]).toEqual(["theirs", false]);
  undo(tab().id);
  expect(tab().text).toBe("mine");
});

it("knows that a file is gone, and writes it again", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  files.delete("a.py");
  await refresh(tab().id);
  expect(tab().gone).toBe(true);
  expect(await save(tab().id)).toBe(true);
  expect([files.get("a.py"), tab().gone]).toEqual(["one", false]);
});

it("goes back and forth: cells are steps of their own, what is typed is one", () => {
  openText("a.csv", "a\n1\n");
  const { id } = tab();
  change(id, "a\n2\n");
  change(id, "a\n3\n");
  change(id, "a\n34\n", true);
  change(id, "a\n345\n", true);
  undo(id);
  expect(tab().text).toBe("a\n3\n");
  undo(id);
  undo(id);
  undo(id);
  expect(tab().text).toBe("a\n1\n");
  redo(id);
  expect(tab().text).toBe("a\n2\n");
});

it("opens a text once, and makes a file of it", async () => {
  const { files } = serveFiles();
  openText("", "a,b\n1,2\n", "csv");
  openText("", "a,b\n1,2\n", "csv");
  expect(canvas.get().tabs.map((one) => [one.name, one.view, isChanged(one)])).toEqual([["answer.csv", "grid", true]]);
  expect(await saveAs(tab().id, "data/x.csv")).toBe(true);
  expect([files.get("data/x.csv"), tab().name, tab().file?.path, isChanged(tab())]).toEqual(["a,b\n1,2\n", "x.csv", "data/x.csv", false]);
});

it("follows a file that is called otherwise, also by its folder", async () => {
  serveFiles({ "src/a.py": "1" });
  await openFile("src/a.py");
  moved("coder", "src", "lib");
  expect([tab().file?.path, tab().name]).toEqual(["lib/a.py", "a.py"]);
  moved("other", "lib", "x");
  expect(tab().file?.path).toBe("lib/a.py");
});

it("is something else with another name", async () => {
  serveFiles({ "a.txt": "a,b\n1,2\n" });
  await openFile("a.txt");
  moved("coder", "a.txt", "a.csv");
  expect([tab().kind, tab().view]).toEqual(["data", "grid"]);
});

it("is not written over another file unasked, and not into another agent's workspace", async () => {
  const { files } = serveFiles({ "a.py": "mine", "b.py": "precious" });
  await openFile("a.py");
  const ask = vi.fn(() => false);
  vi.stubGlobal("confirm", ask);
  expect([await saveAs(tab().id, "b.py"), files.get("b.py")]).toEqual([false, "precious"]);
  ask.mockReturnValue(true);
  patch({ agent: "other" });
  expect([await saveAs(tab().id, "b.py"), files.get("b.py"), ask.mock.calls.length]).toEqual([true, "mine", 2]);
  expect(tab().file).toMatchObject({ agent: "coder", path: "b.py" });
});

it("is saved twice and has one version before", async () => {
  serveFiles({ "a.py": "one" });
  await openFile("a.py");
  change(tab().id, "two");
  await Promise.all([save(tab().id), save(tab().id)]);
  expect(tab().versions).toEqual(["one"]);
});

it("asks before it loses something", async () => {
  serveFiles({ "a.py": "1" });
  await openFile("a.py");
  change(tab().id, "2");
  const ask = vi.fn(() => false);
  vi.stubGlobal("confirm", ask);
  expect(close(tab().id)).toBe(false);
  ask.mockReturnValue(true);
  expect(close(tab().id)).toBe(true);
  expect(canvas.get()).toEqual({ tabs: [], active: "" });
  openText("answer.py", "x = 1\n");
  expect(close(tab().id)).toBe(true); // it stands in the conversation
  expect(ask.mock.calls.length).toBe(2);
  openText("begun.py", "\n");
  change(tab().id, "x = 2\n", true);
  expect([close(tab().id), ask.mock.calls.length]).toEqual([true, 3]);
});

it("stays for who has to sign in again, and is empty for whoever comes next", async () => {
  serveFiles({ "a.py": "1" });
  await openFile("a.py");
  patch({ me: null });
  expect(canvas.get().tabs.length).toBe(1); // it may be the same one
  patch({ agent: "" });
  expect(canvas.get().tabs).toEqual([]);
});
