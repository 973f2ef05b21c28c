/** Keys in a table. */

import type { KeyboardEvent } from "react";

import type { Cell } from "./gridTable";

export interface Moves {
  at: Cell; // the active cell
  corner: Cell; // the opposite one of its range
  rows: number;
  columns: number;
  select: (at: Cell, corner?: Cell) => void;
  begin: (text?: string) => void; // to write into the cell
  clear: () => void;
  copy: () => void;
  undo: () => void;
  redo: () => void;
}

const PAGE = 20; // rows

/** Return the action of a key, if any. */
export function keyAction(event: KeyboardEvent, moves: Moves): (() => void) | null {
  const held = event.ctrlKey || event.metaKey;
  const target = keyTarget(event, event.shiftKey ? moves.corner : moves.at, moves);
  if (target) return () => moves.select(event.shiftKey ? moves.at : target, target);
  if (held) return heldAction(event, moves);
  const keys: Record<string, () => void> = {
    Enter: () => moves.begin(),
    F2: () => moves.begin(),
    Delete: moves.clear,
    Backspace: moves.clear,
  };
  if (event.key === "Escape") return isOne(moves) ? null : () => moves.select(moves.at);
  if (event.key === " " && event.shiftKey) return () => selectLines(moves, "rows");
  if (keys[event.key]) return keys[event.key]!;
  return event.key.length === 1 && !event.altKey ? () => moves.begin(event.key) : null;
}

/** The cell that a key leads to from another. */
function keyTarget(event: KeyboardEvent, from: Cell, { rows, columns }: Moves): Cell | null {
  const held = event.ctrlKey || event.metaKey;
  const { row, column } = from;
  const targets: Record<string, Cell> = {
    ArrowUp: { row: row - 1, column },
    ArrowDown: { row: row + 1, column },
    ArrowLeft: { row, column: column - 1 },
    ArrowRight: { row, column: column + 1 },
    PageUp: { row: row - PAGE, column },
    PageDown: { row: row + PAGE, column },
    Home: { row: held ? 0 : row, column: 0 },
    End: { row: held ? rows - 1 : row, column: columns - 1 },
  };
  const target = targets[event.key];
  return target ? { row: clamp(target.row, rows), column: clamp(target.column, columns) } : null;
}

const clamp = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));

function heldAction(event: KeyboardEvent, moves: Moves): (() => void) | null {
  const last = { row: moves.rows - 1, column: moves.columns - 1 };
  const keys: Record<string, () => void> = {
    a: () => moves.select({ row: 0, column: 0 }, last),
    c: moves.copy,
    y: moves.redo,
    z: event.shiftKey ? moves.redo : moves.undo,
    " ": () => selectLines(moves, "columns"),
  };
  return keys[event.key.toLowerCase()] ?? null;
}

const isOne = ({ at, corner }: Moves): boolean => at.row === corner.row && at.column === corner.column;

/** Widen the range to whole rows, or to whole columns. */
function selectLines({ at, corner, rows, columns, select }: Moves, lines: "rows" | "columns"): void {
  if (lines === "rows") select({ row: at.row, column: 0 }, { row: corner.row, column: columns - 1 });
  else select({ row: 0, column: at.column }, { row: rows - 1, column: corner.column });
}
