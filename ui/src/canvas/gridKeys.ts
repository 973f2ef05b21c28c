/** Keys in a table. */

import type { KeyboardEvent } from "react";

export interface Cell {
  row: number; // on this page
  column: number;
}

export interface Moves {
  at: Cell;
  rows: number;
  columns: number;
  go: (row: number, column: number) => void;
  begin: (text?: string) => void; // to write into the cell
  clear: () => void;
  undo: () => void;
  redo: () => void;
}

/** Return the action of a key, if any. */
export function keyAction(event: KeyboardEvent, moves: Moves): (() => void) | null {
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
    Enter: () => moves.begin(),
    F2: () => moves.begin(),
    Delete: moves.clear,
    Backspace: moves.clear,
  };
  if (keys[event.key]) return keys[event.key]!;
  return event.key.length === 1 && !held && !event.altKey ? () => moves.begin(event.key) : null;
}
