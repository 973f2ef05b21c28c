/** The tools of a grid: filter, add, delete and copy, and how many rows and cells there are. */

import { formatPlural } from "../parts/amounts";
import { activeRange, type GridModel } from "./gridTable";
import type { Table } from "./table";
import styles from "./canvas.module.css";

interface Props {
  model: GridModel;
  table: Table;
  edits: { add: () => void; remove: () => void } | null;
  copy: () => void;
}

export function GridTools({ model, table, edits, copy }: Props) {
  const filter = (model.state.globalFilter as string | undefined) ?? "";
  const rows = model.getRowModel().rows;
  const chosen = Math.max(1, model.getCellSelectionRowIds().length);
  const number = Number(rows[activeRange(model).at.row]?.id ?? 0) + 1;
  const cells = model.getSelectedCellCount();
  return (
    <div className={styles.gridTools}>
      <label className="visually-hidden" htmlFor="grid-filter">
        Filter rows
      </label>
      <input
        id="grid-filter"
        type="search"
        placeholder="Filter rows"
        value={filter}
        onChange={(event) => model.setGlobalFilter(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && filter && event.stopPropagation()}
      />
      {edits && <button onClick={edits.add}>Add row</button>}
      {edits && rows.length > 0 && (
        <button onClick={edits.remove}>{chosen > 1 ? `Delete ${chosen} rows` : `Delete row ${number}`}</button>
      )}
      {rows.length > 0 && <button onClick={copy}>{cells > 1 ? `Copy ${cells.toLocaleString()} cells` : "Copy"}</button>}
      <span className="grow" />
      <small className="visually-hidden" aria-live="polite">
        {cells > 1 && `${cells.toLocaleString()} cells selected`}
      </small>
      <small role="status">
        {formatPlural(rows.length, "row")}
        {rows.length < table.rows.length && ` of ${table.rows.length.toLocaleString()}`}
      </small>
    </div>
  );
}
