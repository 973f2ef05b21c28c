/** The tree: arrow keys walk it, Enter opens, F2 renames, Delete deletes. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";

import { openFile } from "../../canvas/open";
import { removeEntry, renameEntry } from "./actions";
import { readDropped, type Upload } from "./droppedFiles";
import type { Live } from "./live";
import { parentPath, type Row } from "./rows";
import { TreeRow } from "./TreeRow";
import styles from "./files.module.css";

interface Props {
  agent: string;
  thread: string;
  rows: Row[];
  live: Live;
  put: (folder: string, files: Promise<Upload[]>) => Promise<void>;
}

const HEIGHT = 30;

export function Tree({ agent, thread, rows, live, put }: Props) {
  const [wanted, choose] = useState("");
  const [renaming, setRenaming] = useState("");
  const [over, setOver] = useState("");
  const place = useRef<HTMLDivElement>(null);
  const at = Math.max(
    0,
    rows.findIndex((row) => row.path === wanted),
  );
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => place.current,
    estimateSize: () => HEIGHT,
    overscan: 20,
    initialRect: { width: 300, height: 600 },
  });
  useEffect(() => {
    if (!renaming && place.current?.contains(document.activeElement))
      place.current.querySelector<HTMLElement>(`[data-row="${at}"]`)?.focus();
  }, [at, wanted, renaming]);

  const go = (to: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    virtual.scrollToIndex(next);
    if (rows[next]) choose(rows[next].path);
  };
  const acts = {
    open: (row: Row) => (row.open === null ? void openFile(row.path) : live.toggle(row.path)),
    ask: (row: Row) => setRenaming(row.path),
    remove: async (row: Row) => {
      if (await removeEntry(agent, row)) await live.look();
    },
    rename: async (row: Row, name: string | null) => {
      if (name !== null && !(await renameEntry(agent, row, name))) return false;
      setRenaming("");
      await live.look();
      return true;
    },
    drop: (folder: string, data: DataTransfer) => void put(folder, readDropped(data)),
  };
  const press = (event: KeyboardEvent) => {
    const row = rows[at];
    if (!row || renaming || event.target !== event.currentTarget.querySelector(`[data-row="${at}"]`)) return;
    const act = keyAction(event.key, row, at, rows, { ...acts, go, toggle: live.toggle });
    if (!act) return;
    event.preventDefault();
    act();
  };
  return (
    <div className={styles.tree} ref={place}>
      <div
        role="tree"
        aria-label="Files"
        onKeyDown={press}
        style={{ height: virtual.getTotalSize(), position: "relative" }}
      >
        {virtual.getVirtualItems().map(({ index, start }) => {
          const row = rows[index]!;
          return (
            <TreeRow
              key={row.path}
              agent={agent}
              thread={thread}
              row={row}
              index={index}
              start={start}
              chosen={index === at}
              renaming={renaming === row.path}
              over={over === row.path}
              setOver={setOver}
              choose={choose}
              acts={acts}
            />
          );
        })}
      </div>
    </div>
  );
}

interface Moves {
  go: (to: number) => void;
  toggle: (path: string, open?: boolean) => void;
  open: (row: Row) => void;
  ask: (row: Row) => void;
  remove: (row: Row) => Promise<void>;
}

/** Return the action of a key on the selected row. */
function keyAction(key: string, row: Row, at: number, rows: Row[], moves: Moves): (() => void) | undefined {
  const above = () =>
    Math.max(
      0,
      rows.findIndex((one) => one.path === parentPath(row.path)),
    );
  const keys: Record<string, () => void> = {
    ArrowDown: () => moves.go(at + 1),
    ArrowUp: () => moves.go(at - 1),
    Home: () => moves.go(0),
    End: () => moves.go(rows.length - 1),
    ArrowRight: () => (row.open === false ? moves.toggle(row.path, true) : row.open ? moves.go(at + 1) : undefined),
    ArrowLeft: () => (row.open ? moves.toggle(row.path, false) : moves.go(above())),
    Enter: () => moves.open(row),
    " ": () => moves.open(row),
    F2: () => moves.ask(row),
    Delete: () => void moves.remove(row),
  };
  return keys[key];
}
