/** The names of the columns; each sorts the rows up, then down, then no more, and has a handle for its width. */

import type { KeyboardEvent } from "react";

import { joinClasses } from "../parts/classes";
import type { GridModel } from "./gridTable";
import styles from "./canvas.module.css";

const STEP = 16; // pixels of a key

export function GridHead({ model, figures }: { model: GridModel; figures: ReadonlySet<number> }) {
  return (
    <div role="rowgroup" className={styles.gridHead}>
      <div role="row" className={styles.gridRow} aria-rowindex={1}>
        <div role="columnheader" className={styles.rowNumber}>
          <span className="visually-hidden">Row</span>
        </div>
        {model.getFlatHeaders().map((header, at) => (
          <ColumnHead key={header.id} header={header} isFigure={figures.has(at)} />
        ))}
      </div>
    </div>
  );
}

type Header = ReturnType<GridModel["getFlatHeaders"]>[number];

const SIGNS = { asc: "▴", desc: "▾" };

function ColumnHead({ header, isFigure }: { header: Header; isFigure: boolean }) {
  const { column } = header;
  const sorted = column.getIsSorted();
  const name = String(column.columnDef.header);
  return (
    <div
      role="columnheader"
      aria-sort={sorted ? (sorted === "asc" ? "ascending" : "descending") : "none"}
      className={joinClasses(styles.gridCell, isFigure && styles.figure)}
    >
      <button
        className="plain"
        title={`${name}: sort; Shift and ← → change its width`}
        aria-keyshortcuts="Shift+ArrowLeft Shift+ArrowRight"
        onClick={() => column.toggleSorting()}
        onKeyDown={(event) => resizeByKey(header, event)}
      >
        {name} <span aria-hidden="true">{sorted && SIGNS[sorted]}</span>
      </button>
      <i
        className={joinClasses(styles.gridHandle, column.getIsResizing() && styles.moving)}
        aria-hidden="true"
        onMouseDown={(event) => {
          event.preventDefault(); // the focus stays where it is
          header.getResizeHandler()(event);
        }}
        onTouchStart={header.getResizeHandler()}
        onDoubleClick={() => column.resetSize()}
      />
    </div>
  );
}

function resizeByKey({ column }: Header, event: KeyboardEvent): void {
  const steps: Record<string, number> = { ArrowLeft: -STEP, ArrowRight: STEP };
  const step = steps[event.key];
  if (!step || !event.shiftKey) return;
  event.preventDefault();
  event.stopPropagation();
  const { minSize = 0, maxSize = Infinity } = column.columnDef;
  const size = Math.min(maxSize, Math.max(minSize, column.getSize() + step));
  column.table.setColumnSizing((old) => ({ ...old, [column.id]: size }));
}
