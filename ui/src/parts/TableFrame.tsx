/** A table in a text: it scrolls on its own, and can be copied. */

import { useRef } from "react";

import { Icon } from "../shell/Icon";
import { copyText } from "../state/talk";
import { tableCells, toCsv } from "./csv";
import styles from "./markdown.module.css";

export function TableFrame({ children, ...look }: React.ComponentProps<"table">) {
  const table = useRef<HTMLTableElement>(null);
  return (
    <div className={styles.tableFrame} data-table="">
      <div className={styles.table} tabIndex={0} role="group" aria-label="table">
        <table {...look} ref={table}>
          {children}
        </table>
      </div>
      <button
        className="plain"
        title="Copy as CSV"
        onClick={() => table.current && void copyText(toCsv(tableCells(table.current)))}
      >
        <Icon name="copy" /> Copy as CSV
      </button>
    </div>
  );
}
