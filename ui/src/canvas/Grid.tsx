/** A table to be looked at and changed: sorted, filtered, page by page, with the keyboard as with the mouse. */

import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";

import { changed, type Look, numeric, shown, type Table, withoutRow, withRow } from "./table";

export const PAGE_ROWS = 100;

interface Props {
  table: Table;
  onChange: ((table: Table) => void) | null; // null: it can only be looked at
  onUndo: () => void;
  onRedo: () => void;
}

interface Cell {
  row: number; // on this page
  column: number;
}

export function Grid({ table, onChange, onUndo, onRedo }: Props) {
  const [look, setLook] = useState<Look>({ sort: null, filter: "" });
  const [wanted, setPage] = useState(0);
  const [at, setAt] = useState<Cell>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<string | null>(null);
  const places = useMemo(() => shown(table, look), [table, look]);
  const figures = useMemo(() => new Set(numeric(table)), [table]);
  const pages = Math.max(1, Math.ceil(places.length / PAGE_ROWS));
  const page = Math.min(wanted, pages - 1);
  const rows = places.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  const body = useFocus(at, editing);

  const go = (row: number, column: number) => setAt({ row: clamp(row, rows.length), column: clamp(column, table.columns.length) });
  const begin = (text: string) => onChange && rows.length && setEditing(text);
  const commit = (text: string) => {
    setEditing(null);
    const row = rows[at.row];
    if (row !== undefined && text !== table.rows[row]![at.column]) onChange?.(changed(table, row, at.column, text));
  };
  const value = () => table.rows[rows[at.row] ?? -1]?.[at.column] ?? "";
  const sort = (column: number) => {
    const down = look.sort?.column === column && !look.sort.down;
    setLook({ ...look, sort: look.sort?.column === column && look.sort.down ? null : { column, down } });
  };
  const press = (event: KeyboardEvent) => {
    const act = action(event, { at, go, begin, value, rows: rows.length, columns: table.columns.length, undo: onUndo, redo: onRedo, clear: () => onChange && commit("") });
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };

  return (
    <div className="data">
      <div className="grid-tools">
        <label className="visually-hidden" htmlFor="grid-filter">Filter rows</label>
        <input id="grid-filter" type="search" placeholder="Filter rows" value={look.filter} onChange={(event) => { setLook({ ...look, filter: event.target.value }); setPage(0); }} />
        {onChange && <button onClick={() => { onChange(withRow(table, rows[at.row] ?? table.rows.length - 1)); setLook({ sort: null, filter: "" }); }}>Add a row</button>}
        {onChange && rows.length > 0 && <button onClick={() => onChange(withoutRow(table, rows[at.row] ?? rows[0]!))}>Delete row {(rows[at.row] ?? 0) + 1}</button>}
        <span className="grow" />
        <small role="status">{places.length.toLocaleString()} {places.length === 1 ? "row" : "rows"}{places.length < table.rows.length && ` of ${table.rows.length.toLocaleString()}`}</small>
      </div>
      <div className="grid-place">
        <table className="grid" role="grid" aria-rowcount={places.length + 1} aria-colcount={table.columns.length} aria-label="Data" aria-readonly={!onChange}>
          <thead>
            <tr>
              <th className="row-number"><span className="visually-hidden">Row</span></th>
              {table.columns.map((name, column) => (
                <th key={column} aria-sort={look.sort?.column === column ? (look.sort.down ? "descending" : "ascending") : "none"} className={figures.has(column) ? "figure" : ""}>
                  <button className="plain" onClick={() => sort(column)}>{name} <span aria-hidden="true">{look.sort?.column === column ? (look.sort.down ? "▾" : "▴") : ""}</span></button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={body} onKeyDown={editing === null ? press : undefined}>
            {rows.map((place, row) => (
              <tr key={place} aria-rowindex={page * PAGE_ROWS + row + 2}>
                <th scope="row" className="row-number">{place + 1}</th>
                {table.rows[place]!.map((text, column) => {
                  const here = row === at.row && column === at.column;
                  return (
                    <td key={column} role="gridcell" data-cell={`${row},${column}`} tabIndex={here ? 0 : -1} className={figures.has(column) ? "figure" : ""} onFocus={() => (here ? undefined : setAt({ row, column }))} onDoubleClick={() => begin(text)}>
                      {here && editing !== null ? <Edit text={editing} done={commit} cancel={() => setEditing(null)} next={() => go(row, column + 1)} down={() => go(row + 1, column)} /> : text}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
        {!rows.length && <p className="empty">{look.filter ? "No row has this in it." : "This table has no rows."}</p>}
      </div>
      {pages > 1 && (
        <nav className="pager" aria-label="Pages of the table">
          <button disabled={page === 0} onClick={() => setPage(page - 1)}>Previous</button>
          <span>Page {page + 1} of {pages}</span>
          <button disabled={page === pages - 1} onClick={() => setPage(page + 1)}>Next</button>
        </nav>
      )}
    </div>
  );
}

const clamp = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));

/** The cell that is meant has the focus, once somebody is in the table. */
function useFocus(at: Cell, editing: string | null) {
  const body = useRef<HTMLTableSectionElement>(null);
  useEffect(() => {
    if (editing !== null || !body.current?.contains(document.activeElement ?? null)) return;
    body.current.querySelector<HTMLElement>(`[data-cell="${at.row},${at.column}"]`)?.focus();
  }, [at, editing]);
  return body;
}

interface Moves {
  at: Cell;
  rows: number;
  columns: number;
  go: (row: number, column: number) => void;
  begin: (text: string) => void;
  value: () => string;
  clear: () => void;
  undo: () => void;
  redo: () => void;
}

/** What a key does in the table. */
function action(event: KeyboardEvent, moves: Moves): (() => void) | null {
  const { at, go } = moves;
  const held = event.ctrlKey || event.metaKey;
  if (held && event.key.toLowerCase() === "z") return event.shiftKey ? moves.redo : moves.undo;
  if (held && event.key.toLowerCase() === "y") return moves.redo;
  const keys: Record<string, () => void> = {
    ArrowUp: () => go(at.row - 1, at.column),
    ArrowDown: () => go(at.row + 1, at.column),
    ArrowLeft: () => go(at.row, at.column - 1),
    ArrowRight: () => go(at.row, at.column + 1),
    PageUp: () => go(at.row - 20, at.column),
    PageDown: () => go(at.row + 20, at.column),
    Home: () => go(held ? 0 : at.row, 0),
    End: () => go(held ? moves.rows - 1 : at.row, moves.columns - 1),
    Enter: () => moves.begin(moves.value()),
    F2: () => moves.begin(moves.value()),
    Delete: moves.clear,
    Backspace: moves.clear,
  };
  if (keys[event.key]) return keys[event.key]!;
  return event.key.length === 1 && !held && !event.altKey ? () => moves.begin(event.key) : null;
}

function Edit({ text, done, cancel, next, down }: { text: string; done: (text: string) => void; cancel: () => void; next: () => void; down: () => void }) {
  const [value, setValue] = useState(text);
  const over = useRef(false);
  const finish = (act: () => void) => {
    over.current = true;
    act();
  };
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Escape") finish(cancel);
    else if (event.key === "Enter" || event.key === "Tab") finish(() => { done(value); (event.key === "Tab" ? next : down)(); });
    else return;
    event.preventDefault();
  };
  return <input aria-label="Value" autoFocus value={value} onChange={(event) => setValue(event.target.value)} onKeyDown={press} onBlur={() => over.current || done(value)} />;
}
