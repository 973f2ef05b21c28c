/** A table to be looked at and changed: it scrolls, and is sorted, filtered, selected and copied by keys and mouse. */

import { defaultRangeExtractor, type Range, useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type MouseEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";

import { notify } from "../state/app";
import { copyText } from "../state/talk";
import { GridEdit } from "./GridEdit";
import { GridHead } from "./GridHead";
import { keyAction } from "./gridKeys";
import { GridRow } from "./GridRow";
import {
  activeRange,
  type Cell,
  type GridModel,
  selectedCells,
  selectedText,
  selectRange,
  useGridModel,
} from "./gridTable";
import { GridTools } from "./GridTools";
import { numericColumns, type Table, withCells, withoutRows, withRow } from "./table";
import styles from "./canvas.module.css";

const ROW_HEIGHT = 28; // pixels, as in the style sheet
const OVERSCAN = 12;

interface Props {
  table: Table;
  onChange: ((table: Table) => void) | null; // null: it can only be looked at
  onUndo: () => void;
  onRedo: () => void;
}

interface Editing {
  text: string; // to begin with
  was: string;
}

export function Grid({ table, onChange, onUndo, onRedo }: Props) {
  const model = useGridModel(table);
  const [editing, setEditing] = useState<Editing | null>(null);
  const figures = useMemo(() => new Set(numericColumns(table)), [table]);
  const rows = model.getRowModel().rows;
  const { at, corner } = activeRange(model);
  const place = useRef<HTMLDivElement>(null);
  const virtual = useRows(place, rows.length, at.row, corner.row);
  const body = useFocus(at, corner, editing !== null);
  const value = rows[at.row]?.original[at.column] ?? "";

  const begin = (text = value) => onChange && rows.length && setEditing({ text, was: value });
  const commit = (text: string, was: string) => {
    setEditing(null);
    const row = rows[at.row];
    if (row === undefined || text === was) return;
    if (value !== was) notify(`The table was changed elsewhere, so “${text}” was not saved.`, "error");
    else onChange?.(withCells(table, [{ row: Number(row.id), column: at.column }], text));
  };
  const add = () => {
    const after = Number(rows[at.row]?.id ?? table.rows.length - 1);
    onChange?.(withRow(table, after));
    model.resetSorting(true);
    model.setGlobalFilter("");
    const [row, column] = [String(after + 1), "0"];
    model.selectCellRange({ anchorRowId: row, anchorColumnId: column, focusRowId: row, focusColumnId: column });
  };
  const remove = () => {
    onChange?.(withoutRows(table, new Set(selectedCells(model).map((cell) => cell.row))));
    selectRange(model, { ...at, row: Math.min(at.row, corner.row) });
  };
  const copy = () => void copyText(selectedText(model));
  const press = (event: KeyboardEvent) => {
    const act = keyAction(event, {
      at,
      corner,
      rows: rows.length,
      columns: table.columns.length,
      select: (from, to) => selectRange(model, from, to),
      begin,
      clear: () => onChange?.(withCells(table, selectedCells(model), "")),
      copy,
      undo: onUndo,
      redo: onRedo,
    });
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };

  return (
    <div className={styles.data}>
      <GridTools model={model} table={table} edits={onChange && { add, remove }} copy={copy} />
      <div className={styles.gridPlace} ref={place}>
        <div
          className={styles.grid}
          role="grid"
          aria-rowcount={rows.length + 1}
          aria-colcount={table.columns.length}
          aria-label="Data"
          aria-readonly={!onChange}
          aria-multiselectable
          style={{ "--grid-columns": gridColumns(model) } as React.CSSProperties}
        >
          <GridHead model={model} figures={figures} />
          <div
            role="rowgroup"
            className={styles.gridBody}
            ref={body}
            style={{ height: virtual.getTotalSize() }}
            onKeyDown={editing === null ? press : undefined}
            onDoubleClick={(event) => cellOf(event.target) && begin()}
            onMouseDown={(event) => startRange(model, event)}
            onMouseOver={(event) => modelCell(model, cellOf(event.target))?.getSelectionExtendHandler()(event)}
            onFocus={(event) => {
              const cell = cellOf(event.target);
              if (cell && !isSame(cell, activeRange(model).at)) selectRange(model, cell);
            }}
          >
            {virtual.getVirtualItems().map(({ index, start }) => (
              <GridRow
                key={rows[index]!.id}
                cells={rows[index]!.original}
                place={Number(rows[index]!.id)}
                row={index}
                start={start}
                figures={figures}
                selected={selectedColumns(model, index)}
                at={index === at.row ? at.column : null}
                edit={
                  index === at.row && editing ? (
                    <GridEdit
                      text={editing.text}
                      done={(text) => commit(text, editing.was)}
                      cancel={() => setEditing(null)}
                      next={() =>
                        selectRange(model, { ...at, column: Math.min(at.column + 1, table.columns.length - 1) })
                      }
                      down={() => selectRange(model, { ...at, row: Math.min(at.row + 1, rows.length - 1) })}
                    />
                  ) : null
                }
              />
            ))}
          </div>
        </div>
        {!rows.length && (
          <p className="empty">{model.state.globalFilter ? "No matching rows." : "This table has no rows."}</p>
        )}
      </div>
    </div>
  );
}

const isSame = (one: Cell, other: Cell): boolean => one.row === other.row && one.column === other.column;

/** The cell that an element is in, by its place among the visible ones. */
function cellOf(target: EventTarget): Cell | null {
  const found = (target as Element).closest<HTMLElement>("[data-cell]")?.dataset["cell"]?.split(",").map(Number);
  return found ? { row: found[0]!, column: found[1]! } : null;
}

const modelCell = (model: GridModel, cell: Cell | null) =>
  cell && model.getRowModel().rows[cell.row]?.getAllCells()[cell.column];

/** Begin a range at a cell, or at the number of a row; with Shift the active cell stays where it is. */
function startRange(model: GridModel, event: MouseEvent): void {
  if (event.button !== 0 || (event.target as Element).closest("input")) return;
  const focused = document.activeElement;
  if (focused instanceof HTMLInputElement && event.currentTarget.contains(focused)) focused.blur(); // ends the edit
  const { at } = activeRange(model);
  const number = (event.target as Element).closest<HTMLElement>("[data-row]")?.dataset["row"];
  if (number !== undefined) selectRow(model, event.shiftKey ? at.row : Number(number), Number(number));
  else modelCell(model, cellOf(event.target))?.getSelectionStartHandler()(event);
  if (number === undefined && !event.shiftKey) return; // the browser moves the focus
  event.preventDefault();
  const active = activeRange(model).at;
  event.currentTarget.querySelector<HTMLElement>(`[data-cell="${active.row},${active.column}"]`)?.focus();
}

function selectRow(model: GridModel, from: number, to: number): void {
  selectRange(model, { row: from, column: 0 }, { row: to, column: model.getAllLeafColumns().length - 1 });
}

/** The selected columns of a visible row, as a text that is equal for equal columns: "0-2 5-5". */
function selectedColumns(model: GridModel, row: number): string {
  return model
    .getCellSelectionBounds()
    .filter((box) => box.minRowIndex <= row && row <= box.maxRowIndex)
    .map((box) => `${box.minColumnIndex}-${box.maxColumnIndex}`)
    .join(" ");
}

const gridColumns = (model: GridModel): string =>
  `var(--grid-number) ${model
    .getAllLeafColumns()
    .map((column) => `${column.getSize()}px`)
    .join(" ")}`;

/** The rows to draw: those that are looked at, and the two corners of the range, which may have the focus. */
function useRows(place: React.RefObject<HTMLDivElement | null>, count: number, at: number, corner: number) {
  const before = useRef(at); // it stays until the focus has left it
  useEffect(() => {
    before.current = at;
  }, [at]);
  const rangeExtractor = useCallback(
    (range: Range) =>
      [...new Set([before.current, at, corner, ...defaultRangeExtractor(range)])]
        .filter((row) => row < count)
        .sort((a, b) => a - b),
    [at, corner, count],
  );
  return useVirtualizer({
    count,
    getScrollElement: () => place.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: OVERSCAN,
    initialRect: { width: 600, height: 600 },
    rangeExtractor,
  });
}

/** Focus the active cell once the focus is in the table, or when a cell that had it is not edited any more. */
function useFocus(at: Cell, corner: Cell, editing: boolean) {
  const body = useRef<HTMLDivElement>(null);
  const edited = useRef(false);
  const find = (cell: Cell) => body.current?.querySelector<HTMLElement>(`[data-cell="${cell.row},${cell.column}"]`);
  useEffect(() => {
    const lost = edited.current && document.activeElement === document.body; // the field was removed with its focus
    edited.current = editing;
    if (!editing && (lost || body.current?.contains(document.activeElement ?? null))) find(at)?.focus();
  }, [at.row, at.column, editing]); // eslint-disable-line react-hooks/exhaustive-deps -- cells are new objects
  useEffect(() => {
    if (body.current?.contains(document.activeElement ?? null))
      find(corner)?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  }, [corner.row, corner.column]); // eslint-disable-line react-hooks/exhaustive-deps -- likewise
  return body;
}
