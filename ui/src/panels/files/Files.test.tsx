import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { canvas } from "../../canvas/tabs";
import { app, patchApp } from "../../state/app";
import { serveFiles } from "../../testing/files";
import { serve } from "../../testing/serve";
import Files from "../Files";

beforeEach(() => {
  Object.defineProperties(HTMLElement.prototype, {
    clientHeight: { configurable: true, value: 600 },
    clientWidth: { configurable: true, value: 300 },
  }); // jsdom lays nothing out
  patchApp({ agent: "coder", thread: "", panel: "files" });
  canvas.set(() => ({ tabs: [], active: "" }));
});
let stop = () => {};
afterEach(() => {
  cleanup();
  stop();
  vi.unstubAllGlobals();
});

const names = () => screen.getAllByRole("treeitem").map((row) => row.getAttribute("data-path"));
const press = (key: string) => fireEvent.keyDown(document.activeElement!, { key });

async function shown(files: Record<string, string>) {
  const here = serveFiles(files);
  stop = here.stop;
  render(<Files />);
  (await screen.findAllByRole("treeitem"))[0]!.focus();
  return here;
}

it("is walked with the keyboard, and opens files on the canvas", async () => {
  await shown({ "src/a.py": "1", "b.txt": "2" });
  expect(names()).toEqual(["src", "b.txt"]);
  press("ArrowRight");
  await waitFor(() => expect(names()).toEqual(["src", "src/a.py", "b.txt"]));
  press("ArrowDown");
  press("Enter");
  await waitFor(() => expect(canvas.get().tabs.map((tab) => tab.text)).toEqual(["1"]));
  expect(app.get().panel).toBe("canvas");
});

it("asks for no files before the agents are loaded", async () => {
  const server = serve({});
  stop = server.stop;
  patchApp({ agent: "" });
  render(<Files />);
  await screen.findByRole("status");
  expect(server.asked).toEqual([]);
});

it("renames with F2, and tabs follow", async () => {
  const { files } = await shown({ "b.txt": "2" });
  press("F2");
  fireEvent.change(screen.getByLabelText("New name of b.txt"), { target: { value: "c.txt" } });
  fireEvent.keyDown(screen.getByLabelText("New name of b.txt"), { key: "Enter" });
  await waitFor(() => expect(names()).toEqual(["c.txt"]));
  expect([...files.keys()]).toEqual(["c.txt"]);
});

it("deletes when that is confirmed", async () => {
  const { files } = await shown({ "b.txt": "2", "c.txt": "3" });
  vi.stubGlobal("confirm", () => false);
  press("Delete");
  expect(files.size).toBe(2);
  vi.stubGlobal("confirm", () => true);
  press("Delete");
  await waitFor(() => expect(names()).toEqual(["c.txt"]));
});

it("takes files that are chosen", async () => {
  const { files } = await shown({ "b.txt": "2" });
  fireEvent.change(screen.getByLabelText("Files to upload"), { target: { files: [new File(["hello"], "up.txt")] } });
  await waitFor(() => expect(names()).toEqual(["b.txt", "up.txt"]));
  expect(files.has("up.txt")).toBe(true);
});

it("says what to do when there is nothing", async () => {
  stop = serveFiles().stop;
  render(<Files />);
  expect(await screen.findByText(/The workspace is empty/)).toBeTruthy();
});
