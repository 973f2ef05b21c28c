/** The tree: arrow keys walk it, Enter opens, F2 renames, Delete deletes. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";

import * as api from "../api";
import { openFile } from "../canvas/open";
import { Icon } from "../shell/Icon";
import { remove, rename } from "./filesActions";
import type { Live } from "./filesLive";
import { bytes, parent, type Row } from "./filesTree";

interface Props {
  agent: string;
  thread: string;
  rows: Row[];
  live: Live;
  put: (folder: string, files: Iterable<File>) => Promise<void>;
}

const HEIGHT = 30;

export function Tree({ agent, thread, rows, live, put }: Props) {
  const [wanted, choose] = useState("");
  const [renaming, setRenaming] = useState("");
  const [over, setOver] = useState("");
  const place = useRef<HTMLDivElement>(null);
  const at = Math.max(0, rows.findIndex((row) => row.path === wanted));
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => place.current, estimateSize: () => HEIGHT, overscan: 20, initialRect: { width: 300, height: 600 } });
  useEffect(() => {
    if (!renaming && place.current?.contains(document.activeElement)) place.current.querySelector<HTMLElement>(`[data-row="${at}"]`)?.focus();
  }, [at, wanted, renaming]);

  const go = (to: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    virtual.scrollToIndex(next);
    if (rows[next]) choose(rows[next].path);
  };
  const open = (row: Row) => (row.open === null ? void openFile(row.path) : live.toggle(row.path));
  const drop = async (row: Row) => {
    if (await remove(agent, row)) await live.look();
  };
  const press = (event: KeyboardEvent) => {
    const row = rows[at];
    if (!row || renaming) return;
    const keys: Record<string, () => void> = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      ArrowRight: () => (row.open === false ? live.toggle(row.path, true) : row.open ? go(at + 1) : undefined),
      ArrowLeft: () => (row.open ? live.toggle(row.path, false) : go(Math.max(0, rows.findIndex((one) => one.path === parent(row.path))))),
      Enter: () => open(row),
      " ": () => open(row),
      F2: () => setRenaming(row.path),
      Delete: () => void drop(row),
    };
    const act = keys[event.key];
    if (!act || event.target !== event.currentTarget.querySelector(`[data-row="${at}"]`)) return;
    event.preventDefault();
    act();
  };
  return (
    <div className="tree" ref={place}>
      <div role="tree" aria-label="Files" onKeyDown={press} style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map(({ index, start }) => {
          const row = rows[index]!;
          const folder = row.open === null ? parent(row.path) : row.path;
          return (
            <div
              key={row.path}
              role="treeitem"
              data-row={index}
              data-path={row.path}
              aria-level={row.depth}
              aria-selected={index === at}
              aria-expanded={row.open ?? undefined}
              tabIndex={index === at ? 0 : -1}
              className={over === folder && row.path === folder ? "file over" : "file"}
              style={{ transform: `translateY(${start}px)`, paddingLeft: row.depth * 16 }}
              onFocus={(event) => event.target === event.currentTarget && choose(row.path)}
              onClick={() => { choose(row.path); open(row); }}
              onDragOver={(event) => { event.preventDefault(); setOver(folder); }}
              onDragLeave={() => setOver("")}
              onDrop={(event) => { event.preventDefault(); event.stopPropagation(); setOver(""); void put(folder, event.dataTransfer.files); }}
            >
              <span className="file-mark" aria-hidden="true">{row.open === null ? "" : row.open ? "▾" : "▸"}</span>
              <Icon name={row.open === null ? "file" : "folder"} />
              {renaming === row.path ? (
                <Rename row={row} done={async (name) => { if (name === null || (await rename(agent, row, name))) { setRenaming(""); await live.look(); } }} />
              ) : (
                <>
                  <span className="file-name">{row.name}</span>
                  <span className="file-actions" onClick={(event) => event.stopPropagation()}>
                    <button className="plain" tabIndex={-1} aria-label={`Rename ${row.name}`} title="Rename (F2)" onClick={() => { choose(row.path); setRenaming(row.path); }}><Icon name="pen" /></button>
                    {row.open === null && <a className="plain" tabIndex={-1} aria-label={`Download ${row.name}`} title="Download" href={api.files.downloadUrl(agent, row.path, thread)} download={row.name}><Icon name="down" /></a>}
                    <button className="plain" tabIndex={-1} aria-label={`Delete ${row.name}`} title="Delete" onClick={() => void drop(row)}><Icon name="bin" /></button>
                  </span>
                  {row.open === null && <small>{bytes(row.size)}</small>}
                </>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Rename({ row, done }: { row: Row; done: (name: string | null) => Promise<void> }) {
  const [name, setName] = useState(row.name);
  const over = useRef(false);
  const end = (value: string | null) => {
    over.current = value === null || value === row.name;
    void done(value);
  };
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Enter") end(name);
    else if (event.key === "Escape") end(null);
  };
  const select = (event: React.FocusEvent<HTMLInputElement>) => event.target.setSelectionRange(0, row.name.lastIndexOf(".") > 0 && row.open === null ? row.name.lastIndexOf(".") : row.name.length);
  return <input aria-label={`New name of ${row.name}`} autoFocus value={name} onFocus={select} onClick={(event) => event.stopPropagation()} onChange={(event) => setName(event.target.value)} onKeyDown={press} onBlur={() => over.current || end(null)} />;
}
