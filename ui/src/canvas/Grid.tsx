/** A table to be looked at and changed: sorted, filtered, page by page, with the keyboard as with the mouse. */

import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";

import { notify } from "../state/app";
import { keyAction, type Cell } from "./gridKeys";
import { GridRow } from "./GridRow";
import { withCell, type Look, numericColumns, visibleRows, type Table, withoutRow, withRow } from "./table";
import styles from "./canvas.module.css";

export const PAGE_ROWS = 100;

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
  const [look, setLook] = useState<Look>({ sort: null, filter: "" });
  const [wanted, setPage] = useState(0);
  const [at, setAt] = useState<Cell>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<Editing | null>(null);
  const places = useMemo(() => visibleRows(table, look), [table, look]);
  const figures = useMemo(() => new Set(numericColumns(table)), [table]);
  const pages = Math.max(1, Math.ceil(places.length / PAGE_ROWS));
  const page = Math.min(wanted, pages - 1);
  const rows = places.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  const body = useFocus(at, editing !== null);

  const value = table.rows[rows[at.row] ?? -1]?.[at.column] ?? "";
  const go = (row: number, column: number) =>
    setAt({ row: clamp(row, rows.length), column: clamp(column, table.columns.length) });
  const begin = (text = value) => onChange && rows.length && setEditing({ text, was: value });
  const commit = (text: string, was: string) => {
    setEditing(null);
    const row = rows[at.row];
    if (row === undefined || text === was) return;
    if (value !== was) notify(`The table was changed elsewhere, so “${text}” was not saved.`, "error");
    else onChange?.(withCell(table, row, at.column, text));
  };
  const add = () => {
    const after = rows[at.row] ?? table.rows.length - 1;
    onChange?.(withRow(table, after));
    setLook({ sort: null, filter: "" });
    setPage(Math.floor((after + 1) / PAGE_ROWS));
    setAt({ row: (after + 1) % PAGE_ROWS, column: 0 });
  };
  const press = (event: KeyboardEvent) => {
    const act = keyAction(event, {
      at,
      go,
      begin,
      rows: rows.length,
      columns: table.columns.length,
      undo: onUndo,
      redo: onRedo,
      clear: () => onChange && commit("", value),
    });
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };

  return (
    <div className={styles.data}>
      <div className={styles.gridTools}>
        <label className="visually-hidden" htmlFor="grid-filter">
          Filter rows
        </label>
        <input
          id="grid-filter"
          type="search"
          placeholder="Filter rows"
          value={look.filter}
          onChange={(event) => {
            setLook({ ...look, filter: event.target.value });
            setPage(0);
          }}
          onKeyDown={(event) => event.key === "Escape" && look.filter && event.stopPropagation()}
        />
        {onChange && <button onClick={add}>Add row</button>}
        {onChange && rows.length > 0 && (
          <button onClick={() => onChange(withoutRow(table, rows[at.row] ?? rows[0]!))}>
            Delete row {(rows[at.row] ?? 0) + 1}
          </button>
        )}
        <span className="grow" />
        <small role="status">
          {places.length.toLocaleString()} {places.length === 1 ? "row" : "rows"}
          {places.length < table.rows.length && ` of ${table.rows.length.toLocaleString()}`}
        </small>
      </div>
      <div className={styles.gridPlace}>
        <table
          className={styles.grid}
          role="grid"
          aria-rowcount={places.length + 1}
          aria-colcount={table.columns.length}
          aria-label="Data"
          aria-readonly={!onChange}
        >
          <Head table={table} look={look} figures={figures} sort={(sort) => setLook({ ...look, sort })} />
          <tbody ref={body} onKeyDown={editing === null ? press : undefined}>
            {rows.map((place, row) => (
              <GridRow
                key={place}
                cells={table.rows[place]!}
                place={place}
                row={row}
                index={page * PAGE_ROWS + row + 2}
                figures={figures}
                at={row === at.row ? at.column : null}
                editing={editing?.text ?? null}
                choose={(column) => setAt({ row, column })}
                begin={() => begin()}
                done={(text) => commit(text, editing?.was ?? "")}
                cancel={() => setEditing(null)}
                go={go}
              />
            ))}
          </tbody>
        </table>
        {!rows.length && <p className="empty">{look.filter ? "No matching rows." : "This table has no rows."}</p>}
      </div>
      {pages > 1 && <Pager page={page} pages={pages} turn={setPage} />}
    </div>
  );
}

const clamp = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));

/** The names of the columns; each sorts the rows up, then down, then no more. */
function Head({
  table,
  look,
  figures,
  sort,
}: {
  table: Table;
  look: Look;
  figures: ReadonlySet<number>;
  sort: (sort: Look["sort"]) => void;
}) {
  const next = (column: number): Look["sort"] => {
    if (look.sort?.column !== column) return { column, down: false };
    return look.sort.down ? null : { column, down: true };
  };
  const sorted = (column: number) =>
    look.sort?.column !== column
      ? null
      : look.sort.down
        ? { order: "descending" as const, sign: "▾" }
        : { order: "ascending" as const, sign: "▴" };
  return (
    <thead>
      <tr>
        <th className={styles.rowNumber}>
          <span className="visually-hidden">Row</span>
        </th>
        {table.columns.map((name, column) => (
          <th
            key={column}
            aria-sort={sorted(column)?.order ?? "none"}
            className={figures.has(column) ? styles.figure : undefined}
          >
            <button className="plain" onClick={() => sort(next(column))}>
              {name} <span aria-hidden="true">{sorted(column)?.sign}</span>
            </button>
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Pager({ page, pages, turn }: { page: number; pages: number; turn: (page: number) => void }) {
  return (
    <nav className={styles.pager} aria-label="Table pages">
      <button disabled={page === 0} onClick={() => turn(page - 1)}>
        Previous
      </button>
      <span>
        Page {page + 1} of {pages}
      </span>
      <button disabled={page === pages - 1} onClick={() => turn(page + 1)}>
        Next
      </button>
    </nav>
  );
}

/** Focus the current cell once the focus is in the table, or when a cell that had it is not edited any more. */
function useFocus(at: Cell, editing: boolean) {
  const body = useRef<HTMLTableSectionElement>(null);
  const edited = useRef(false);
  useEffect(() => {
    const lost = edited.current && document.activeElement === document.body; // the field was removed with its focus
    edited.current = editing;
    if (editing || (!lost && !body.current?.contains(document.activeElement ?? null))) return;
    body.current?.querySelector<HTMLElement>(`[data-cell="${at.row},${at.column}"]`)?.focus();
  }, [at, editing]);
  return body;
}
