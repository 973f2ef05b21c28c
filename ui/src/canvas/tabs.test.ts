import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { app, patchApp } from "../state/app";
import { serveFiles as serve } from "../testing/files";
import { renameTabs, refreshTab, saveTab, saveAs, resolveConflict } from "./tabFiles";
import { openFile, openText } from "./open";
import { canvas, changeText, closeTab, isChanged, redo, type Tab, undo } from "./tabs";
import { versionsOf } from "./versions";

beforeEach(() => {
  patchApp({ agent: "coder", thread: "", panel: null });
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
  expect([tab().name, tab().text, tab().kind, tab().view, app.get().panel]).toEqual([
    "a.py",
    "x = 1\n",
    "code",
    "code",
    "canvas",
  ]);
  changeText(tab().id, "x = 2\n");
  expect(isChanged(tab())).toBe(true);
  expect(await saveTab(tab().id)).toBe(true);
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
  await refreshTab(tab().id);
  expect([tab().text, tab().versions]).toEqual(["two", ["one"]]);
});

it("does not write over what others wrote meanwhile", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  changeText(tab().id, "mine");
  files.set("a.py", "theirs");
  expect(await saveTab(tab().id)).toBe(false);
  expect([files.get("a.py"), tab().theirs, tab().text]).toEqual(["theirs", "theirs", "mine"]);
  resolveConflict(tab().id, "mine");
  expect(await saveTab(tab().id)).toBe(true);
  expect(files.get("a.py")).toBe("mine");
});

it("takes theirs when that is wanted, and can go back", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  changeText(tab().id, "mine");
  files.set("a.py", "theirs");
  await refreshTab(tab().id);
  resolveConflict(tab().id, "theirs");
  expect([tab().text, isChanged(tab())]).toEqual(["theirs", false]);
  undo(tab().id);
  expect(tab().text).toBe("mine");
});

it("knows that a file is gone, and writes it again", async () => {
  const { files } = serveFiles({ "a.py": "one" });
  await openFile("a.py");
  files.delete("a.py");
  await refreshTab(tab().id);
  expect(tab().gone).toBe(true);
  expect(await saveTab(tab().id)).toBe(true);
  expect([files.get("a.py"), tab().gone]).toEqual(["one", false]);
});

it("goes back and forth: cells are steps of their own, what is typed is one", () => {
  openText("a.csv", "a\n1\n");
  const { id } = tab();
  changeText(id, "a\n2\n");
  changeText(id, "a\n3\n");
  changeText(id, "a\n34\n", true);
  changeText(id, "a\n345\n", true);
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
  expect([files.get("data/x.csv"), tab().name, tab().file?.path, isChanged(tab())]).toEqual([
    "a,b\n1,2\n",
    "x.csv",
    "data/x.csv",
    false,
  ]);
});

it("follows a file that is called otherwise, also by its folder", async () => {
  serveFiles({ "src/a.py": "1" });
  await openFile("src/a.py");
  renameTabs("coder", "src", "lib");
  expect([tab().file?.path, tab().name]).toEqual(["lib/a.py", "a.py"]);
  renameTabs("other", "lib", "x");
  expect(tab().file?.path).toBe("lib/a.py");
});

it("is something else with another name", async () => {
  serveFiles({ "a.txt": "a,b\n1,2\n" });
  await openFile("a.txt");
  renameTabs("coder", "a.txt", "a.csv");
  expect([tab().kind, tab().view]).toEqual(["data", "grid"]);
});

it("is not written over another file unasked, and not into another agent's workspace", async () => {
  const { files } = serveFiles({ "a.py": "mine", "b.py": "precious" });
  await openFile("a.py");
  const ask = vi.fn(() => false);
  vi.stubGlobal("confirm", ask);
  expect([await saveAs(tab().id, "b.py"), files.get("b.py")]).toEqual([false, "precious"]);
  ask.mockReturnValue(true);
  patchApp({ agent: "other" });
  expect([await saveAs(tab().id, "b.py"), files.get("b.py"), ask.mock.calls.length]).toEqual([true, "mine", 2]);
  expect(tab().file).toMatchObject({ agent: "coder", path: "b.py" });
});

it("is saved twice and has one version before", async () => {
  serveFiles({ "a.py": "one" });
  await openFile("a.py");
  changeText(tab().id, "two");
  await Promise.all([saveTab(tab().id), saveTab(tab().id)]);
  expect(tab().versions).toEqual(["one"]);
});

it("asks before it loses something", async () => {
  serveFiles({ "a.py": "1" });
  await openFile("a.py");
  changeText(tab().id, "2");
  const ask = vi.fn(() => false);
  vi.stubGlobal("confirm", ask);
  expect(closeTab(tab().id)).toBe(false);
  ask.mockReturnValue(true);
  expect(closeTab(tab().id)).toBe(true);
  expect(canvas.get()).toEqual({ tabs: [], active: "" });
  openText("answer.py", "x = 1\n");
  expect(closeTab(tab().id)).toBe(true); // it is in the conversation
  expect(ask.mock.calls.length).toBe(2);
  openText("begun.py", "\n");
  changeText(tab().id, "x = 2\n", true);
  expect([closeTab(tab().id), ask.mock.calls.length]).toEqual([true, 3]);
});

it("stays for a user who signs in again, and is empty for another user", async () => {
  serveFiles({ "a.py": "1" });
  await openFile("a.py");
  patchApp({ me: null });
  expect(canvas.get().tabs.length).toBe(1); // it may be the same one
  patchApp({ agent: "" });
  expect(canvas.get().tabs).toEqual([]);
});
