/** A file of data, as a grid or as a chart. */

import { useMemo } from "react";

import { DataChart } from "./DataChart";
import { Grid } from "./Grid";
import { NotATable, readTable, type Table, writeTable } from "./table";
import { changeText, redo, type Tab, undo, updateTab } from "./tabs";

export default function Data({ tab }: { tab: Tab }) {
  const table = useMemo(() => attemptTable(tab.text, tab.name), [tab.text, tab.name]);
  if (typeof table === "string") {
    return (
      <p className="empty" role="alert">
        {table} <button onClick={() => updateTab(tab.id, { view: "code" })}>Show as code</button>
      </p>
    );
  }
  if (!table.columns.length)
    return <p className="empty">This file is empty. Switch to Code and write the column names as the first line.</p>;
  if (tab.view === "chart") return <DataChart key={tab.id} table={table} />;
  const write = (next: Table) => changeText(tab.id, writeTable(next));
  return (
    <Grid
      key={tab.id}
      table={table}
      onChange={tab.cut ? null : write}
      onUndo={() => undo(tab.id)}
      onRedo={() => redo(tab.id)}
    />
  );
}

function attemptTable(text: string, name: string): Table | string {
  try {
    return readTable(text, name);
  } catch (error) {
    if (error instanceof NotATable) return error.message;
    throw error;
  }
}
