/** The model of a grid: TanStack Table sorts and filters its rows, and holds widths and selected ranges. */

import {
  cellSelectionFeature,
  columnFilteringFeature,
  columnResizingFeature,
  columnSizingFeature,
  createFilteredRowModel,
  createSortedRowModel,
  globalFilteringFeature,
  type ReactTable,
  rowSortingFeature,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import Papa from "papaparse";
import { useMemo } from "react";

import { compareCells, type Table } from "./table";

const FEATURES = tableFeatures({
  cellSelectionFeature,
  columnFilteringFeature,
  columnResizingFeature,
  columnSizingFeature,
  globalFilteringFeature,
  rowSortingFeature,
  filteredRowModel: createFilteredRowModel(),
  sortedRowModel: createSortedRowModel(),
});

export type GridModel = ReactTable<typeof FEATURES, string[]>;

/** A cell among the visible ones. */
export interface Cell {
  row: number;
  column: number;
}

/** Columns and rows have their places in the table as ids. */
export function useGridModel(table: Table): GridModel {
  const columns = useMemo(() => table.columns.map((name, at) => columnOf(table, name, at)), [table]);
  return useTable<typeof FEATURES, string[]>({
    features: FEATURES,
    columns,
    data: table.rows,
    autoResetCellSelection: false,
    columnResizeMode: "onChange",
    enableMultiSort: false,
    getColumnCanGlobalFilter: () => true,
    globalFilterFn: (row, column, wanted: string) =>
      row.getValue<string>(column).toLowerCase().includes(wanted.trim().toLowerCase()),
  });
}

function columnOf(table: Table, name: string, at: number) {
  return {
    id: String(at),
    header: name,
    accessorFn: (row: string[]) => row[at] ?? "",
    size: likelyWidth([`${name}   `, ...table.rows.slice(0, SAMPLE).map((row) => row[at] ?? "")]),
    minSize: LEAST_WIDTH,
    maxSize: MOST_WIDTH,
    sortDescFirst: false,
    sortFn: (a: Values, b: Values, id: string) => compareCells(a.getValue<string>(id), b.getValue<string>(id)),
  };
}

interface Values {
  getValue: <T>(column: string) => T;
}

const SAMPLE = 200; // rows whose texts decide about the width of a column
const [LEAST_WIDTH, LIKELY_WIDTH, MOST_WIDTH] = [48, 320, 2_000];
const [LETTER, PADDING] = [7.6, 30];

/** The width that a column has at first; letters of East Asian scripts are wide, and the name leaves room for a sign. */
function likelyWidth(texts: string[]): number {
  const letters = (text: string) => text.length + (text.match(/[\u1100-\uffdc]/g)?.length ?? 0);
  const most = Math.max(...texts.map(letters));
  return Math.round(Math.min(LIKELY_WIDTH, Math.max(LEAST_WIDTH, most * LETTER + PADDING)));
}

/** The active cell and the opposite corner of its range; the first cell where the active one is not visible. */
export function activeRange(model: GridModel): { at: Cell; corner: Cell } {
  const rows = model.getRowModel().rows;
  const range = model.atoms.cellSelection.get().at(-1);
  const find = (row: string, column: string): Cell | null => {
    const place = model.getCoreRowModel().rowsById[row]?.getDisplayIndex() ?? -1;
    return rows[place]?.id === row ? { row: place, column: Number(column) } : null;
  };
  const at = (range && find(range.anchorRowId, range.anchorColumnId)) ?? { row: 0, column: 0 };
  return { at, corner: (range && find(range.focusRowId, range.focusColumnId)) ?? at };
}

/** Select the cells between two corners, the first of which is the active cell. */
export function selectRange(model: GridModel, at: Cell, corner: Cell = at): void {
  const rows = model.getRowModel().rows;
  const [first, last] = [rows[at.row], rows[corner.row]];
  if (first && last)
    model.selectCellRange({
      anchorRowId: first.id,
      anchorColumnId: String(at.column),
      focusRowId: last.id,
      focusColumnId: String(corner.column),
    });
}

/** The selected cells, by their places in the table; the active one where none is selected. */
export function selectedCells(model: GridModel): Cell[] {
  const rows = model.getRowModel().rows;
  const found = model.getCellSelectionBounds().flatMap((box) =>
    rows.slice(box.minRowIndex, box.maxRowIndex + 1).flatMap((row) =>
      Array.from({ length: box.maxColumnIndex - box.minColumnIndex + 1 }, (_, at) => ({
        row: Number(row.id),
        column: box.minColumnIndex + at,
      })),
    ),
  );
  const { at } = activeRange(model);
  return found.length || !rows[at.row] ? found : [{ row: Number(rows[at.row]!.id), column: at.column }];
}

/** The selected ranges as spreadsheets paste them. */
export function selectedText(model: GridModel): string {
  const { at } = activeRange(model);
  const active = model.getRowModel().rows[at.row]?.original[at.column] ?? "";
  const ranges = model.getSelectedCellRangesData() as string[][][];
  return (ranges.length ? ranges : [[[active]]])
    .map((rows) => Papa.unparse(rows, { delimiter: "\t", newline: "\n" }))
    .join("\n");
}
