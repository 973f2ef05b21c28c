import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { useState } from "react";
import { afterEach, expect, it } from "vitest";

import { app } from "../state/app";
import { Grid, PAGE_ROWS } from "./Grid";
import { readTable, type Table, writeTable } from "./table";

afterEach(cleanup);

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

it("shows a long table page by page", () => {
  render(
    <Place text={`n\n${Array.from({ length: PAGE_ROWS + 5 }, (_, at) => at).join("\n")}\n`} seen={() => undefined} />,
  );
  expect(cells().length).toBe(PAGE_ROWS);
  fireEvent.click(screen.getByRole("button", { name: "Next" }));
  expect(cells().map((row) => row[0])).toEqual(["100", "101", "102", "103", "104"]);
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
