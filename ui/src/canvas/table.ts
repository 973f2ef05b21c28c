/** A table of data: read from CSV, TSV or JSON, sorted, filtered, changed, and written back as it was. */

import Papa from "papaparse";

import { formatValue } from "../api/values";

export interface Table {
  columns: string[];
  rows: string[][];
  format: "csv" | "tsv" | "json";
  delimiter: string; // between two cells
  head: string[]; // the names of the columns as the file has them, which may be none
  objects: Row[]; // the JSON values of the rows
  indent: string; // of that JSON
}

type Row = Record<string, unknown>;

export class NotATable extends Error {}

export function readTable(text: string, name: string): Table {
  if (/\.json$/i.test(name)) return readJson(text);
  const format = /\.tsv$/i.test(name) ? "tsv" : "csv";
  const delimiter = format === "tsv" ? "\t" : delimiterOf(text);
  const parsed = Papa.parse<string[]>(text, { delimiter });
  const [head = [], ...rows] = withoutBlank(parsed.data);
  const width = rows.reduce((most, row) => Math.max(most, row.length), head.length);
  const columns = padRow(head, width).map((name, at) => name || `column ${at + 1}`);
  return {
    columns,
    rows: rows.map((row) => padRow(row, width)),
    format,
    delimiter,
    head: padRow(head, width),
    objects: [],
    indent: "",
  };
}

/** The most frequent delimiter of the first line, outside of quotes. */
function delimiterOf(text: string): string {
  const line = (/^(?:"(?:[^"]|"")*"|[^"\n])*/.exec(text.trimStart())?.[0] ?? "").replace(/"(?:[^"]|"")*"/g, "");
  const count = (sign: string) => line.split(sign).length - 1;
  return [",", ";", "\t", "|"].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
}

/** Rows without empty lines, which are none; in a table of one column they are cells, except at its ends. */
function withoutBlank(rows: string[][]): string[][] {
  const isBlank = (row: string[]) => row.length === 1 && !row[0]!.trim();
  const first = rows.findIndex((row) => !isBlank(row));
  if (first < 0) return [];
  if (rows[first]!.length > 1) return rows.filter((row) => !isBlank(row));
  return rows.slice(first, isBlank(rows.at(-1)!) ? -1 : undefined);
}

function padRow(row: string[], width: number): string[] {
  return row.length === width ? row : [...row, ...Array<string>(width - row.length).fill("")];
}

const LONG_NUMBER = /(?<=[[:,\s])-?\d[\d.]{15,}(?=[\s,\]}])/g;

/** True if a browser would write some number differently. */
const isRounded = (text: string): boolean =>
  (text.match(LONG_NUMBER) ?? []).some((digits) => String(Number(digits)) !== digits);

function readJson(text: string): Table {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new NotATable(`Invalid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!Array.isArray(data) || !data.every((row) => row && typeof row === "object" && !Array.isArray(row))) {
    throw new NotATable("The table view needs a list of objects; view this file as code.");
  }
  if (isRounded(text))
    throw new NotATable("This file has numbers with more digits than the table view can keep; view it as code.");
  const objects = data as Row[];
  const columns = [...new Set(objects.flatMap((row) => Object.keys(row)))];
  const indent = /^\s*\[\r?\n([ \t]+)/.exec(text)?.[1] ?? (text.trim().includes("\n") ? "  " : "");
  return {
    columns,
    rows: objects.map((row) => rowCells(row, columns)),
    format: "json",
    delimiter: "",
    head: columns,
    objects,
    indent,
  };
}

const rowCells = (row: Row, columns: string[]): string[] => columns.map((column) => formatValue(row[column]));

export function writeTable(table: Table): string {
  if (table.format === "json") return `${JSON.stringify(table.objects, null, table.indent)}\n`;
  return `${Papa.unparse({ fields: table.head, data: table.rows }, { delimiter: table.delimiter, newline: "\n" })}\n`;
}

/** Parse a cell of JSON. A string stays one, even if it looks like a number. */
function parseCell(text: string, like: unknown): unknown {
  if (typeof like === "string") return text;
  if (text === "") return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** The order of cells: numbers by their values, and before texts. */
export function compareCells(a: string, b: string): number {
  const [x, y] = [parseNumber(a), parseNumber(b)];
  if (x !== null && y !== null) return x - y;
  if (x !== null || y !== null) return x !== null ? -1 : 1; // numbers first
  return a.localeCompare(b);
}

/** A number as people write it: with a currency, a percent sign or commas. */
export function parseNumber(text: string): number | null {
  const plain = text.trim().replace(/^[$€£]\s*|\s*%$|(?<=\d),(?=\d{3}\b)/g, "");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : null;
}

/** The table with one value in these cells. */
export function withCells(table: Table, cells: readonly { row: number; column: number }[], value: string): Table {
  const rows = [...table.rows];
  const objects = [...table.objects];
  for (const { row, column } of cells) {
    rows[row] = rows[row]!.with(column, value);
    if (table.format !== "json") continue;
    const name = table.columns[column]!;
    const old = objects[row]!;
    const like = old[name] ?? objects.find((one) => one[name] !== null && one[name] !== undefined)?.[name];
    objects[row] = { ...old, [name]: parseCell(value, like) };
  }
  return { ...table, rows, objects };
}

/** Columns that can be drawn: most values are numbers. */
export function numericColumns(table: Table): number[] {
  return table.columns
    .map((_, column) => column)
    .filter((column) => {
      const values = table.rows.map((row) => row[column] ?? "").filter((value) => value.trim());
      return values.length > 0 && values.filter((value) => parseNumber(value) !== null).length >= values.length * 0.9;
    });
}

/** The table with an empty row after one of its rows; -1 is before the first. */
export function withRow(table: Table, after: number): Table {
  const objects =
    table.format === "json"
      ? table.objects.toSpliced(after + 1, 0, Object.fromEntries(table.columns.map((name) => [name, null])))
      : [];
  return {
    ...table,
    rows: table.rows.toSpliced(
      after + 1,
      0,
      table.columns.map(() => ""),
    ),
    objects,
  };
}

export function withoutRows(table: Table, gone: ReadonlySet<number>): Table {
  const stays = (_: unknown, row: number) => !gone.has(row);
  return { ...table, rows: table.rows.filter(stays), objects: table.objects.filter(stays) };
}
