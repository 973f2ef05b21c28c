import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { app } from "../state/app";
import { Grid } from "./Grid";
import { readTable, type Table, writeTable } from "./table";

// A window of 600 px, where nothing is laid out.
beforeEach(() => void vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(600));
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function Place({ text, seen }: { text: string; seen: (text: string) => void }) {
  const [table, setTable] = useState<Table>(() => readTable(text, "a.csv"));
  const write = (next: Table) => {
    setTable(next);
    seen(writeTable(next));
  };
  return <Grid table={table} onChange={write} onUndo={() => undefined} onRedo={() => undefined} />;
}

const cells = () =>
  screen
    .getAllByRole("row")
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole("gridcell")
        .map((cell) => cell.textContent),
    );

it("sorts up, then down, then not at all, and filters", () => {
  render(<Place text={"n,w\n10,b\n9,a\n"} seen={() => undefined} />);
  const head = screen.getByRole("button", { name: /^n/ });
  fireEvent.click(head);
  expect(cells()).toEqual([
    ["9", "a"],
    ["10", "b"],
  ]);
  fireEvent.click(head);
  expect(cells()).toEqual([
    ["10", "b"],
    ["9", "a"],
  ]);
  fireEvent.click(head);
  expect(cells()).toEqual([
    ["10", "b"],
    ["9", "a"],
  ]);
  fireEvent.change(screen.getByLabelText("Filter rows"), { target: { value: "a" } });
  expect(cells()).toEqual([["9", "a"]]);
  expect(screen.getByRole("status").textContent).toBe("1 row of 2");
});

it("is changed with the keyboard alone", () => {
  let text = "";
  render(
    <Place
      text={"n,w\n10,b\n9,a\n"}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  const first = screen.getAllByRole("gridcell")[0]!;
  first.focus();
  fireEvent.keyDown(first, { key: "ArrowDown" });
  fireEvent.keyDown(document.activeElement!, { key: "ArrowRight" });
  expect(document.activeElement!.textContent).toBe("a");
  fireEvent.keyDown(document.activeElement!, { key: "Enter" });
  const input = screen.getByLabelText("Value");
  fireEvent.change(input, { target: { value: "z" } });
  fireEvent.keyDown(input, { key: "Enter" });
  expect(text).toBe("n,w\n10,b\n9,z\n");
});

it("leaves a cell as it was after Escape", () => {
  let text = "";
  render(
    <Place
      text={"n\n1\n"}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  fireEvent.doubleClick(screen.getByRole("gridcell"));
  fireEvent.change(screen.getByLabelText("Value"), { target: { value: "2" } });
  fireEvent.keyDown(screen.getByLabelText("Value"), { key: "Escape" });
  expect(text).toBe("");
  expect(cells()).toEqual([["1"]]);
});

const keys = (...names: [string, KeyboardEventInit?][]) => {
  for (const [key, held] of names) fireEvent.keyDown(document.activeElement!, { key, ...held });
};
const SHIFT = { shiftKey: true };
const CONTROL = { ctrlKey: true };

it("draws the rows of a long table that are looked at, and goes to any other", () => {
  render(<Place text={`n\n${Array.from({ length: 200_000 }, (_, at) => at).join("\n")}\n`} seen={() => undefined} />);
  expect(cells().length).toBeLessThan(60);
  screen.getAllByRole("gridcell")[0]!.focus();
  keys(["End", CONTROL]);
  expect(document.activeElement!.textContent).toBe("199999");
  keys(["ArrowUp"]);
  expect(document.activeElement!.textContent).toBe("199998");
});

it("selects ranges with Shift, and copies and clears them", () => {
  const copied: string[] = [];
  vi.stubGlobal("navigator", {
    clipboard: { writeText: (text: string) => Promise.resolve(void copied.push(text)) },
  });
  let text = "";
  render(
    <Place
      text={'a,b,c\n1,"x\ty",3\n4,"q""q",6\n7,8,9\n'}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  screen.getAllByRole("gridcell")[0]!.focus();
  keys(["ArrowRight", SHIFT], ["ArrowDown", SHIFT], ["c", CONTROL]);
  expect(copied).toEqual(['1\t"x\ty"\n4\t"q""q"']);
  expect(screen.getByRole("button", { name: "Copy 4 cells" })).toBeTruthy();
  keys([" ", SHIFT], ["c", CONTROL], [" ", CONTROL], ["c", CONTROL], ["Escape"], ["c", CONTROL]);
  expect(copied.slice(1).map((one) => one.split("\n").length)).toEqual([2, 3, 1]);
  keys(["ArrowRight", SHIFT], ["ArrowDown", SHIFT], ["Delete"]);
  expect(text).toBe("a,b,c\n,,3\n,,6\n7,8,9\n");
  vi.unstubAllGlobals();
});

it("selects with the mouse, and deletes the selected rows", () => {
  let text = "";
  render(
    <Place
      text={"a,b\n1,2\n3,4\n5,6\n"}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  const selected = () => screen.getAllByRole("gridcell", { selected: true }).map((cell) => cell.textContent);
  const cell = (name: string) => screen.getByRole("gridcell", { name });
  fireEvent.mouseDown(cell("1"));
  fireEvent.mouseOver(cell("4"));
  fireEvent.mouseUp(document);
  fireEvent.mouseOver(cell("6")); // without a button
  expect(selected()).toEqual(["1", "2", "3", "4"]);
  fireEvent.mouseDown(cell("6"), SHIFT);
  expect(selected()).toHaveLength(6);
  fireEvent.mouseDown(screen.getByRole("rowheader", { name: "2" }));
  fireEvent.mouseDown(screen.getByRole("rowheader", { name: "3" }), SHIFT);
  expect(selected()).toEqual(["3", "4", "5", "6"]);
  fireEvent.click(screen.getByRole("button", { name: "Delete 2 rows" }));
  expect(text).toBe("a,b\n1,2\n");
});

it("saves an edit when another cell is pressed", () => {
  let text = "";
  render(
    <Place
      text={"a,b\n1,2\n"}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  fireEvent.doubleClick(screen.getByRole("gridcell", { name: "1" }));
  fireEvent.change(screen.getByLabelText("Value"), { target: { value: "9" } });
  fireEvent.mouseDown(screen.getByRole("gridcell", { name: "2" }));
  expect(text).toBe("a,b\n9,2\n");
  expect(screen.queryByLabelText("Value")).toBeNull();
});

it("changes the width of a column with keys", () => {
  render(<Place text={"a,b\n1,2\n"} seen={() => undefined} />);
  const widths = () => screen.getByRole("grid").style.getPropertyValue("--grid-columns");
  const before = widths();
  fireEvent.keyDown(screen.getByRole("button", { name: /^a/ }), { key: "ArrowRight", shiftKey: true });
  expect(widths()).not.toBe(before);
  fireEvent.keyDown(screen.getByRole("button", { name: /^a/ }), { key: "ArrowLeft", shiftKey: true });
  expect(widths()).toBe(before);
});

it("gets a row and loses it", () => {
  let text = "";
  render(
    <Place
      text={"n\n1\n2\n"}
      seen={(now) => {
        text = now;
      }}
    />,
  );
  fireEvent.click(screen.getByRole("button", { name: "Add row" }));
  expect(cells()).toEqual([["1"], [""], ["2"]]);
  fireEvent.click(screen.getByRole("button", { name: "Delete row 2" })); // the new one is chosen
  expect(text).toBe("n\n1\n2\n");
});

it("does not enter a value into another row than was meant", () => {
  let written = 0;
  const grid = (text: string) => (
    <Grid
      table={readTable(text, "a.csv")}
      onChange={() => void written++}
      onUndo={() => undefined}
      onRedo={() => undefined}
    />
  );
  const { rerender } = render(grid("n\n1\n2\n"));
  fireEvent.doubleClick(screen.getAllByRole("gridcell")[0]!);
  rerender(grid("n\n0\n1\n2\n")); // a row was inserted before it
  fireEvent.change(screen.getByLabelText("Value"), { target: { value: "9" } });
  fireEvent.keyDown(screen.getByLabelText("Value"), { key: "Enter" });
  expect(written).toBe(0);
  expect(
    app
      .get()
      .notices.map((one) => one.text)
      .join(),
  ).toContain("“9” was not saved");
});
