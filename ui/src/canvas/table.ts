/** A table of data: read from CSV, TSV or JSON, sorted, filtered, changed, and written back as it was. */

import Papa from "papaparse";

export interface Table {
  columns: string[];
  rows: string[][];
  format: "csv" | "tsv" | "json";
}

export class NotATable extends Error {}

export function readTable(text: string, name: string): Table {
  if (/\.json$/i.test(name)) return readJson(text);
  const format = /\.tsv$/i.test(name) ? "tsv" : "csv";
  const parsed = Papa.parse<string[]>(text.replace(/^\uFEFF/, ""), { ...(format === "tsv" ? { delimiter: "\t" } : {}) });
  const [head, ...rows] = withoutBlank(parsed.data);
  if (!head) return { columns: [], rows: [], format };
  const width = Math.max(head.length, ...rows.map((row) => row.length));
  return { columns: filled(head, width).map((name, at) => name || `column ${at + 1}`), rows: rows.map((row) => filled(row, width)), format };
}

/** Rows without empty lines, which are none; in a table of one column they are cells, except at its ends. */
function withoutBlank(rows: string[][]): string[][] {
  const isBlank = (row: string[]) => row.length === 1 && !row[0]!.trim();
  const first = rows.findIndex((row) => !isBlank(row));
  if (first < 0) return [];
  if (rows[first]!.length > 1) return rows.filter((row) => !isBlank(row));
  return rows.slice(first, isBlank(rows.at(-1)!) ? -1 : undefined);
}

function filled(row: string[], width: number): string[] {
  return row.length === width ? row : [...row, ...Array<string>(width - row.length).fill("")];
}

function readJson(text: string): Table {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new NotATable(`This is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!Array.isArray(data) || !data.every((row) => row && typeof row === "object" && !Array.isArray(row))) {
    throw new NotATable("A grid needs a list of objects; look at this file as code instead.");
  }
  const objects = data as Record<string, unknown>[];
  const columns = [...new Set(objects.flatMap((row) => Object.keys(row)))];
  return { columns, rows: objects.map((row) => columns.map((column) => cell(row[column]))), format: "json" };
}

function cell(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function writeTable(table: Table): string {
  if (table.format === "json") {
    const objects = table.rows.map((row) => Object.fromEntries(table.columns.map((column, at) => [column, typed(row[at] ?? "")])));
    return `${JSON.stringify(objects, null, 2)}\n`;
  }
  return `${Papa.unparse({ fields: table.columns, data: table.rows }, { delimiter: table.format === "tsv" ? "\t" : ",", newline: "\n" })}\n`;
}

function typed(text: string): unknown {
  if (text === "") return null;
  if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) && String(Number(text)) === text) return Number(text);
  if (text === "true" || text === "false") return text === "true";
  if (/^[[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

export interface Look {
  sort: { column: number; down: boolean } | null;
  filter: string;
}

/** The rows that are shown, each by its place in the table. */
export function shown(table: Table, look: Look): number[] {
  const wanted = look.filter.trim().toLowerCase();
  let places = table.rows.map((_, at) => at);
  if (wanted) places = places.filter((at) => table.rows[at]!.some((value) => value.toLowerCase().includes(wanted)));
  const { sort } = look;
  if (!sort) return places;
  const sign = sort.down ? -1 : 1;
  return places.sort((a, b) => sign * compare(table.rows[a]![sort.column] ?? "", table.rows[b]![sort.column] ?? "") || a - b);
}

function compare(a: string, b: string): number {
  const [x, y] = [number(a), number(b)];
  if (x !== null && y !== null) return x - y;
  if (x !== null || y !== null) return x !== null ? -1 : 1; // numbers first
  return a.localeCompare(b);
}

/** A number as people write it: with a currency, a percent sign or commas. */
export function number(text: string): number | null {
  const plain = text.trim().replace(/^[$€£]\s*|\s*%$|(?<=\d),(?=\d{3}\b)/g, "");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : null;
}

export function changed(table: Table, row: number, column: number, value: string): Table {
  const rows = [...table.rows];
  rows[row] = rows[row]!.map((old, at) => (at === column ? value : old));
  return { ...table, rows };
}

/** The columns that can be drawn: most of what stands in them is numbers. */
export function numeric(table: Table): number[] {
  return table.columns
    .map((_, column) => column)
    .filter((column) => {
      const values = table.rows.map((row) => row[column] ?? "").filter((value) => value.trim());
      return values.length > 0 && values.filter((value) => number(value) !== null).length >= values.length * 0.9;
    });
}

/** The table with an empty row after one of its rows; -1 is before the first. */
export function withRow(table: Table, after: number): Table {
  return { ...table, rows: table.rows.toSpliced(after + 1, 0, table.columns.map(() => "")) };
}

export function withoutRow(table: Table, row: number): Table {
  return { ...table, rows: table.rows.toSpliced(row, 1) };
}
