import { describe, expect, it } from "vitest";

import {
  compareCells,
  withCells,
  NotATable,
  parseNumber,
  numericColumns,
  readTable,
  withoutRows,
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

  it("sorts numbers as numbers, and before texts", () => {
    expect(["x", "10", "$1,000", "9", "b", ""].sort(compareCells)).toEqual(["9", "10", "$1,000", "", "b", "x"]);
    expect(compareCells("9", "9.0")).toBe(0);
  });

  it("is changed in one cell and is otherwise the same", () => {
    const table = readTable(CSV, "a.csv");
    const next = withCells(table, [{ row: 1, column: 1 }], "91");
    expect(next.rows[1]).toEqual(["pear", "91", "two\nlines"]);
    expect(next.rows[0]).toBe(table.rows[0]);
    expect(table.rows[1]![1]).toBe("90");
  });

  it("of JSON keeps what each value is, whichever cell is changed", () => {
    const table = readTable('[{"zip":"01234","n":1,"flag":true},{"zip":"9","n":2,"more":{"a":1}}]', "a.json");
    const changes: [number, number, string][] = [
      [1, 1, "7.5"],
      [1, 0, "00005"],
      [0, 3, '{"b": 2}'],
      [0, 2, ""],
    ];
    const next = changes.reduce((old, [row, column, value]) => withCells(old, [{ row, column }], value), table);
    expect(writeTable(next)).toBe(
      '[{"zip":"01234","n":1,"flag":null,"more":{"b":2}},{"zip":"00005","n":7.5,"more":{"a":1}}]\n',
    );
    expect(writeTable(withoutRows(withRow(next, 0), new Set([0])))).toBe(
      '[{"zip":null,"n":null,"flag":null,"more":null},{"zip":"00005","n":7.5,"more":{"a":1}}]\n',
    );
  });

  it("is changed in many cells at once", () => {
    const cells = [0, 1].flatMap((row) => [0, 1].map((column) => ({ row, column })));
    expect(withCells(readTable("a,b,c\n1,2,3\n4,5,6\n", "a.csv"), cells, "").rows).toEqual([
      ["", "", "3"],
      ["", "", "6"],
    ]);
  });

  it("gets a row, and loses one", () => {
    const table = readTable(CSV, "a.csv");
    expect(withRow(table, 0).rows.map((row) => row[0])).toEqual(["apple", "", "pear", "fig"]);
    expect(withRow(table, -1).rows[0]).toEqual(["", "", ""]);
    expect(withoutRows(table, new Set([1])).rows.map((row) => row[0])).toEqual(["apple", "fig"]);
    expect(withoutRows(table, new Set([0, 2])).rows.map((row) => row[0])).toEqual(["pear"]);
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
