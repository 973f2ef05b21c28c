import { describe, expect, it } from "vitest";

import {
  withCell,
  NotATable,
  parseNumber,
  numericColumns,
  readTable,
  visibleRows,
  withoutRow,
  withRow,
  writeTable,
} from "./table";

const CSV = 'fruit,price,note\napple,"1,200",ok\npear,90,"two\nlines"\nfig,,\n';

describe("a table", () => {
  it("is read from CSV, with quotes, empty cells and rows that are too short", () => {
    const table = readTable(`${CSV}kiwi\n`, "a.csv");
    expect(table.columns).toEqual(["fruit", "price", "note"]);
    expect(table.rows).toEqual([
      ["apple", "1,200", "ok"],
      ["pear", "90", "two\nlines"],
      ["fig", "", ""],
      ["kiwi", "", ""],
    ]);
  });

  it("keeps rows that are empty, and no lines that are", () => {
    expect(readTable("a,b\n\n1,2\n,\n\n", "a.csv").rows).toEqual([
      ["1", "2"],
      ["", ""],
    ]);
    expect(readTable("\na\n1\n\n2\n", "a.csv").rows).toEqual([["1"], [""], ["2"]]);
    const grown = withRow(readTable("a\n1\n", "a.csv"), 0);
    expect(readTable(writeTable(grown), "a.csv")).toEqual(grown);
  });

  it("is written as it was read", () => {
    for (const [text, name] of [
      [CSV, "a.csv"],
      ["a\tb\n1\t2\n", "a.tsv"],
    ] as const) {
      expect(writeTable(readTable(text, name))).toBe(text);
    }
    for (const text of [
      "a;b\n1,5;2\n",
      '"x;y"|b\n1|2\n',
      "a,\n1,2\n",
      '[\n    {\n        "a": "01",\n        "b": [1, 2]\n    }\n]\n',
    ]) {
      const name = text.startsWith("[") ? "a.json" : "a.csv";
      const written = writeTable(readTable(text, name));
      expect(name === "a.json" ? JSON.parse(written) : written).toEqual(
        name === "a.json" ? JSON.parse(text) : text.replace('"x;y"', "x;y"),
      );
    }
  });

  it("sorts numbers as numbers and keeps the order of equals", () => {
    const table = readTable("n,t\n10,a\n9,b\nx,c\n9,d\n", "a.csv");
    expect(visibleRows(table, { sort: { column: 0, down: false }, filter: "" })).toEqual([1, 3, 0, 2]);
    expect(visibleRows(table, { sort: { column: 0, down: true }, filter: "" })).toEqual([2, 0, 1, 3]);
    expect(visibleRows(table, { sort: null, filter: " D " })).toEqual([3]);
  });

  it("is changed in one cell and is otherwise the same", () => {
    const table = readTable(CSV, "a.csv");
    const next = withCell(table, 1, 1, "91");
    expect(next.rows[1]).toEqual(["pear", "91", "two\nlines"]);
    expect(next.rows[0]).toBe(table.rows[0]);
    expect(table.rows[1]![1]).toBe("90");
  });

  it("of JSON keeps what each value is, whichever cell is changed", () => {
    const table = readTable('[{"zip":"01234","n":1,"flag":true},{"zip":"9","n":2,"more":{"a":1}}]', "a.json");
    const next = withCell(withCell(withCell(withCell(table, 1, 1, "7.5"), 1, 0, "00005"), 0, 3, '{"b": 2}'), 0, 2, "");
    expect(writeTable(next)).toBe(
      '[{"zip":"01234","n":1,"flag":null,"more":{"b":2}},{"zip":"00005","n":7.5,"more":{"a":1}}]\n',
    );
    expect(writeTable(withoutRow(withRow(next, 0), 0))).toBe(
      '[{"zip":null,"n":null,"flag":null,"more":null},{"zip":"00005","n":7.5,"more":{"a":1}}]\n',
    );
  });

  it("has as many rows as there are", () => {
    const table = readTable(`a,b\n${"1,2\n".repeat(200_000)}`, "a.csv");
    expect([table.rows.length, visibleRows(table, { sort: { column: 0, down: true }, filter: "" }).length]).toEqual([
      200_000, 200_000,
    ]);
  });

  it("gets a row, and loses one", () => {
    const table = readTable(CSV, "a.csv");
    expect(withRow(table, 0).rows.map((row) => row[0])).toEqual(["apple", "", "pear", "fig"]);
    expect(withRow(table, -1).rows[0]).toEqual(["", "", ""]);
    expect(withoutRow(table, 1).rows.map((row) => row[0])).toEqual(["apple", "fig"]);
    expect(table.rows.length).toBe(3);
  });

  it("knows which columns can be drawn", () => {
    expect(numericColumns(readTable(CSV, "a.csv"))).toEqual([1]);
    expect(parseNumber("$ 1,234.5")).toBe(1234.5);
    expect(parseNumber("12 %")).toBe(12);
    expect(parseNumber("1,23")).toBeNull();
    expect(parseNumber("")).toBeNull();
  });

  it("that is invalid fails with a remedy", () => {
    expect(() => readTable("{", "a.json")).toThrow(NotATable);
    expect(() => readTable('{"a": 1}', "a.json")).toThrow("list of objects");
    expect(() => readTable('[{"id": 12345678901234567890}]', "a.json")).toThrow("view it as code");
    expect(readTable("", "a.csv")).toMatchObject({ columns: [], rows: [], format: "csv" });
  });
});
