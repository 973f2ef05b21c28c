/** A row of a table, one cell of which may be written into. */

import { memo } from "react";

import { joinClasses } from "../parts/classes";
import styles from "./canvas.module.css";

interface Props {
  cells: string[];
  place: number; // in the table
  row: number; // among the visible ones
  start: number; // in pixels
  figures: ReadonlySet<number>; // the columns of numbers
  selected: string; // columns: "0-2 5-5"
  at: number | null; // the active cell of this row
  edit: React.ReactNode; // in its place
}

export const GridRow = memo(function GridRow({ cells, place, row, start, figures, selected, at, edit }: Props) {
  const ranges = selected.split(" ").map((range) => range.split("-").map(Number));
  const isSelected = (column: number) => ranges.some(([from, to]) => from! <= column && column <= to!);
  return (
    <div role="row" className={styles.gridRow} aria-rowindex={row + 2} style={{ top: start }}>
      <div role="rowheader" className={styles.rowNumber} data-row={row}>
        {place + 1}
      </div>
      {cells.map((text, column) => (
        <div
          key={column}
          role="gridcell"
          data-cell={`${row},${column}`}
          tabIndex={column === at ? 0 : -1}
          aria-selected={selected !== "" && isSelected(column)}
          className={joinClasses(styles.gridCell, figures.has(column) && styles.figure)}
        >
          {column === at && edit ? edit : text}
        </div>
      ))}
    </div>
  );
});
