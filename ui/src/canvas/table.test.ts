import { describe, expect, it } from "vitest";

import { changed, NotATable, number, numeric, readTable, shown, withoutRow, withRow, writeTable } from "./table";

const CSV = 'fruit,price,note\napple,"1,200",ok\npear,90,"two\nlines"\nfig,,\n';

describe("a table", () => {
  it("is read from CSV, with quotes, empty cells and rows that are too short", () => {
    const table = readTable(`${CSV}kiwi\n`, "a.csv");
    expect(table.columns).toEqual(["fruit", "price", "note"]);
    expect(table.rows).toEqual([["apple", "1,200", "ok"], ["pear", "90", "two\nlines"], ["fig", "", ""], ["kiwi", "", ""]]);
  });

  it("keeps rows that are empty, and no lines that are", () => {
    expect(readTable("a,b\n\n1,2\n,\n\n", "a.csv").rows).toEqual([["1", "2"], ["", ""]]);
    expect(readTable("\na\n1\n\n2\n", "a.csv").rows).toEqual([["1"], [""], ["2"]]);
    const grown = withRow(readTable("a\n1\n", "a.csv"), 0);
    expect(readTable(writeTable(grown), "a.csv")).toEqual(grown);
  });

  it("is written as it was read", () => {
    for (const [text, name] of [[CSV, "a.csv"], ["a\tb\n1\t2\n", "a.tsv"]] as const) {
      expect(writeTable(readTable(text, name))).toBe(text);
    }
    const json = '[{"a": 1, "b": "x", "c": [1, 2]}, {"a": 2.5, "b": true}]';
    expect(JSON.parse(writeTable(readTable(json, "a.json")))).toEqual([{ a: 1, b: "x", c: [1, 2] }, { a: 2.5, b: true, c: null }]);
  });

  it("sorts numbers as numbers and keeps the order of equals", () => {
    const table = readTable("n,t\n10,a\n9,b\nx,c\n9,d\n", "a.csv");
    expect(shown(table, { sort: { column: 0, down: false }, filter: "" })).toEqual([1, 3, 0, 2]);
    expect(shown(table, { sort: { column: 0, down: true }, filter: "" })).toEqual([2, 0, 1, 3]);
    expect(shown(table, { sort: null, filter: " D " })).toEqual([3]);
  });

  it("is changed in one cell and is otherwise the same", () => {
    const table = readTable(CSV, "a.csv");
    const next = changed(table, 1, 1, "91");
    expect(next.rows[1]).toEqual(["pear", "91", "two\nlines"]);
    expect(next.rows[0]).toBe(table.rows[0]);
    expect(table.rows[1]![1]).toBe("90");
  });

  it("gets a row, and loses one", () => {
    const table = readTable(CSV, "a.csv");
    expect(withRow(table, 0).rows.map((row) => row[0])).toEqual(["apple", "", "pear", "fig"]);
    expect(withRow(table, -1).rows[0]).toEqual(["", "", ""]);
    expect(withoutRow(table, 1).rows.map((row) => row[0])).toEqual(["apple", "fig"]);
    expect(table.rows.length).toBe(3);
  });

  it("knows which columns can be drawn", () => {
    expect(numeric(readTable(CSV, "a.csv"))).toEqual([1]);
    expect(number("$ 1,234.5")).toBe(1234.5);
    expect(number("12 %")).toBe(12);
    expect(number("1,23")).toBeNull();
    expect(number("")).toBeNull();
  });

  it("that is none says what to do", () => {
    expect(() => readTable("{", "a.json")).toThrow(NotATable);
    expect(() => readTable('{"a": 1}', "a.json")).toThrow("list of objects");
    expect(readTable("", "a.csv")).toEqual({ columns: [], rows: [], format: "csv" });
  });
});
