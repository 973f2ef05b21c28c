import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { patchApp } from "../state/app";
import { serveFiles } from "../testing/files";
import Canvas from "./Canvas";
import { Chart } from "./Chart";
import { splitPictures } from "./Document";
import { findChange } from "./Editor";
import { openFile, openText } from "./open";
import { canvas } from "./tabs";

beforeEach(() => {
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(600); // nothing is laid out
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null); // nor drawn
  vi.stubGlobal("matchMedia", () => new EventTarget());
  patchApp({ agent: "coder", thread: "" });
  canvas.set(() => ({ tabs: [], active: "" }));
});
afterEach(cleanup);

const DECK = "# One\n\n---\n\n## Two\n\n- point\n\nNote: say it\n\n---\n\n## Three\n\n- end\n";

it("says what to do when nothing is open, and begins a file", async () => {
  render(<Canvas />);
  fireEvent.change(screen.getByLabelText("Or create one:"), { target: { value: "x.csv" } });
  fireEvent.click(screen.getByRole("button", { name: "Create" }));
  await screen.findByRole("grid");
  expect(screen.getByRole("tab").textContent).toContain("x.csv");
});

it("changes a table and saves it", async () => {
  const { files, stop } = serveFiles({ "a.csv": "n\n1\n" });
  render(<Canvas />);
  await openFile("a.csv");
  fireEvent.doubleClick(await screen.findByRole("gridcell"));
  fireEvent.change(screen.getByLabelText("Value"), { target: { value: "2" } });
  fireEvent.keyDown(screen.getByLabelText("Value"), { key: "Enter" });
  fireEvent.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => expect(files.get("a.csv")).toBe("n\n2\n"));
  await waitFor(() => expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true));
  stop();
});

it("goes through a deck, and gives it another look", async () => {
  render(<Canvas />);
  openText("talk.md", DECK);
  const stage = await screen.findByRole("group", { name: "Slide 1 of 3: One" });
  fireEvent.keyDown(stage, { key: "ArrowRight" });
  await screen.findByRole("group", { name: "Slide 2 of 3: Two" });
  expect(screen.getByText("say it")).toBeTruthy();
  fireEvent.change(screen.getByRole("combobox", { name: /Theme/ }), { target: { value: "sea" } });
  expect(canvas.get().tabs[0]!.text).toBe(`---\ntheme: sea\n---\n\n${DECK}`);
  fireEvent.click(screen.getByRole("button", { name: "Undo" }));
  await waitFor(() => expect(canvas.get().tabs[0]!.text).toBe(DECK));
});

it("presents with keys, and ends with Escape", async () => {
  render(<Canvas />);
  openText("talk.md", DECK);
  fireEvent.click(await screen.findByRole("button", { name: "Present" }));
  const show = screen.getByRole("dialog");
  for (const key of [" ", "ArrowRight", "ArrowRight"]) fireEvent.keyDown(show, { key });
  expect(show.getAttribute("aria-label")).toBe("Presentation, slide 3 of 3: Three");
  fireEvent.keyDown(show, { key: "Escape" });
  await screen.findByRole("group", { name: "Slide 3 of 3: Three" });
  expect(screen.queryByRole("dialog")).toBeNull();
});

it("tells of a file that others changed, and lets choose", async () => {
  const { stop } = serveFiles({ "a.md": "theirs" });
  render(<Canvas />);
  await openFile("a.md");
  canvas.set((old) => ({
    ...old,
    tabs: old.tabs.map((tab) => ({ ...tab, text: "mine", saved: "before", theirs: "theirs" })),
  }));
  fireEvent.click(await screen.findByRole("button", { name: "Use the file’s version" }));
  expect(canvas.get().tabs[0]).toMatchObject({ text: "theirs", saved: "theirs", theirs: null });
  stop();
});

it("walks along its tabs with keys, and closes one", async () => {
  render(<Canvas />);
  for (const name of ["a.csv", "b.csv", "c.csv"]) openText(name, `${name}\n1\n`);
  await waitFor(() => expect(screen.getAllByRole("tab").length).toBe(3));
  const chosen = () => screen.getAllByRole("tab").find((tab) => tab.getAttribute("aria-selected") === "true")!;
  fireEvent.keyDown(chosen(), { key: "ArrowRight" });
  await waitFor(() => expect(chosen().textContent).toContain("a.csv"));
  fireEvent.keyDown(chosen(), { key: "Delete" });
  await waitFor(() => expect(chosen().textContent).toContain("b.csv"));
});

it("runs pages in a frame that may do nothing else", async () => {
  render(<Canvas />);
  openText("x.html", "<!doctype html><script>window.hit = 1</script><p>hi");
  const frame = await screen.findByTitle("Preview of x.html");
  expect(frame.getAttribute("sandbox")).toBe("allow-scripts");
  expect(frame.getAttribute("src")).toBe("/canvas/frame");
});

it("has the figures of a chart as a table, and shows a message without figures", () => {
  const data = {
    kind: "bar" as const,
    title: "T",
    labels: ["a", "b"],
    series: [
      { name: "n", values: [1, null] },
      { name: "m", values: [-2, 3] },
    ],
  };
  const { rerender } = render(<Chart data={data} quiet />);
  const texts = () =>
    screen.getAllByRole("row").map((row) => [...row.children].map((cell) => cell.textContent).join("|"));
  expect(texts()).toEqual(["|n|m", "a|1|-2", "b||3"]);
  rerender(<Chart data={{ ...data, series: [] }} />);
  expect(screen.getByText("No numbers to plot.")).toBeTruthy();
});

it("takes the pictures of a document out of its text, except in code", () => {
  expect(splitPictures("---\ntitle: x\n---\n# A\n\n![w](p.png)\nrest\n```\n![no](q.png)\n```")).toEqual([
    { text: "# A\n" },
    { words: "w", name: "p.png" },
    { text: "rest\n```\n![no](q.png)\n```" },
  ]);
});

it("changes as little as can be", () => {
  expect(findChange("abcdef", "abXdef")).toEqual({ from: 2, to: 3, insert: "X" });
  expect(findChange("aaa", "aaaa")).toEqual({ from: 3, to: 3, insert: "a" });
  expect(findChange("", "x")).toEqual({ from: 0, to: 0, insert: "x" });
});
