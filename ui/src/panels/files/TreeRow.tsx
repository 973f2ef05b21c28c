/** A row of the tree with its actions. */

import { type KeyboardEvent, useRef, useState } from "react";

import * as api from "../../api";
import { showInvisible } from "../../canvas/names";
import { Icon } from "../../shell/Icon";
import { formatBytes, parentPath, type Row } from "./rows";
import { joinClasses } from "../../parts/classes";
import styles from "./files.module.css";

interface Acts {
  open: (row: Row) => void;
  ask: (row: Row) => void; // for another name
  rename: (row: Row, name: string | null) => Promise<boolean>;
  remove: (row: Row) => Promise<void>;
  drop: (folder: string, data: DataTransfer) => void;
}

interface Props {
  agent: string;
  thread: string;
  row: Row;
  index: number;
  start: number; // its position, in pixels
  chosen: boolean;
  renaming: boolean;
  over: boolean; // something is held over it
  setOver: (path: string) => void;
  choose: (path: string) => void;
  acts: Acts;
}

export function TreeRow({ agent, thread, row, index, start, chosen, renaming, over, setOver, choose, acts }: Props) {
  const folder = row.open === null ? parentPath(row.path) : row.path;
  const name = showInvisible(row.name);
  return (
    <div
      role="treeitem"
      data-row={index}
      data-path={row.path}
      aria-level={row.depth}
      aria-selected={chosen}
      aria-expanded={row.open ?? undefined}
      tabIndex={chosen ? 0 : -1}
      className={joinClasses(styles.file, over && styles.over)}
      style={{ transform: `translateY(${start}px)`, paddingLeft: row.depth * 16 }}
      onFocus={(event) => event.target === event.currentTarget && choose(row.path)}
      onClick={() => {
        choose(row.path);
        acts.open(row);
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(folder);
      }}
      onDragLeave={() => setOver("")}
      onDrop={(event) => {
        event.preventDefault();
        event.stopPropagation();
        setOver("");
        acts.drop(folder, event.dataTransfer);
      }}
    >
      <span className={styles.fileMark} aria-hidden="true">
        {row.open === null ? "" : row.open ? "▾" : "▸"}
      </span>
      <Icon name={row.open === null ? "file" : "folder"} />
      {renaming ? (
        <Rename row={row} done={(name) => acts.rename(row, name)} />
      ) : (
        <>
          <span className={styles.fileName} title={name}>
            <bdi>{name}</bdi>
          </span>
          <span className={styles.fileActions} onClick={(event) => event.stopPropagation()}>
            <button
              className="plain"
              tabIndex={-1}
              aria-label={`Rename ${name}`}
              title="Rename (F2)"
              onClick={() => {
                choose(row.path);
                acts.ask(row);
              }}
            >
              <Icon name="pen" />
            </button>
            {row.open === null && (
              <a
                className="plain"
                tabIndex={-1}
                aria-label={`Download ${name}`}
                title="Download"
                href={api.files.downloadUrl(agent, row.path, thread)}
                download={row.name}
              >
                <Icon name="down" />
              </a>
            )}
            <button
              className="plain"
              tabIndex={-1}
              aria-label={`Delete ${name}`}
              title="Delete"
              onClick={() => void acts.remove(row)}
            >
              <Icon name="bin" />
            </button>
          </span>
          {row.open === null && <small>{formatBytes(row.size)}</small>}
        </>
      )}
    </div>
  );
}

/** A field for another name: Enter takes it, anything else leaves things as they are. */
function Rename({ row, done }: { row: Row; done: (name: string | null) => Promise<boolean> }) {
  const [name, setName] = useState(row.name);
  const over = useRef(false);
  const end = async (value: string | null) => {
    if (over.current) return;
    over.current = true;
    over.current = await done(value);
  };
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Enter") void end(name);
    else if (event.key === "Escape") void end(null);
  };
  const stem = row.open === null && row.name.lastIndexOf(".") > 0 ? row.name.lastIndexOf(".") : row.name.length;
  return (
    <input
      aria-label={`New name of ${row.name}`}
      autoFocus
      value={name}
      onFocus={(event) => event.target.setSelectionRange(0, stem)}
      onClick={(event) => event.stopPropagation()}
      onChange={(event) => setName(event.target.value)}
      onKeyDown={press}
      onBlur={() => void end(null)}
    />
  );
}
