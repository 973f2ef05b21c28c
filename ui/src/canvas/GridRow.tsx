/** A row of a table, one cell of which may be written into. */

import { type KeyboardEvent, useRef, useState } from "react";
import styles from "./canvas.module.css";

interface Props {
  cells: string[];
  place: number; // in the table
  row: number; // on this page
  index: number; // among all that is shown, the head being the first
  figures: ReadonlySet<number>; // the columns of numbers
  at: number | null; // the cell of this row that is chosen
  editing: string | null; // its value before editing
  choose: (column: number) => void;
  begin: () => void;
  done: (text: string) => void;
  cancel: () => void;
  go: (row: number, column: number) => void;
}

export function GridRow({ cells, place, row, index, figures, at, editing, choose, begin, done, cancel, go }: Props) {
  return (
    <tr aria-rowindex={index}>
      <th scope="row" className={styles.rowNumber}>
        {place + 1}
      </th>
      {cells.map((text, column) => (
        <td
          key={column}
          role="gridcell"
          data-cell={`${row},${column}`}
          tabIndex={column === at ? 0 : -1}
          className={figures.has(column) ? styles.figure : undefined}
          onFocus={() => column !== at && choose(column)}
          onDoubleClick={begin}
        >
          {column === at && editing !== null ? (
            <Edit
              text={editing}
              done={done}
              cancel={cancel}
              next={() => go(row, column + 1)}
              down={() => go(row + 1, column)}
            />
          ) : (
            text
          )}
        </td>
      ))}
    </tr>
  );
}

function Edit({
  text,
  done,
  cancel,
  next,
  down,
}: {
  text: string;
  done: (text: string) => void;
  cancel: () => void;
  next: () => void;
  down: () => void;
}) {
  const [value, setValue] = useState(text);
  const over = useRef(false);
  const finish = (act: () => void) => {
    over.current = true;
    act();
  };
  const press = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") return finish(() => done(value)); // and it is saved
    event.stopPropagation();
    if (event.key === "Escape") finish(cancel);
    else if (event.key === "Enter" || event.key === "Tab")
      finish(() => {
        done(value);
        (event.key === "Tab" ? next : down)();
      });
    else return;
    event.preventDefault();
  };
  return (
    <input
      aria-label="Value"
      autoFocus
      value={value}
      onChange={(event) => setValue(event.target.value)}
      onKeyDown={press}
      onBlur={() => over.current || done(value)}
    />
  );
}
