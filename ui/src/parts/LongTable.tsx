/** A long table in a text: its rows are laid out some at a time, since a table of the browser is laid out as a whole. */

import { Fragment, useMemo } from "react";

import { joinClasses } from "./classes";
import { columnLetters, type LongTableText } from "./blocks";
import { TableFrame } from "./TableFrame";
import styles from "./longTable.module.css";

const NARROW = 14; // letters: wider columns become narrower where there is no space
const AROUND = 21; // pixels around the text of a cell

interface Props {
  table: LongTableText;
  grows: boolean;
  draw: (text: string, part: "head" | "rows", grows: boolean) => React.ReactNode;
}

/** The width of columns follows from the first rows, so that it stays while more arrive. Roles: it is not laid out as a table. */
export function LongTable({ table, grows, draw }: Props) {
  const sample = `${table.head}${table.rows.slice(0, 2).join("\n")}`;
  const style = useMemo(() => layOut(columnLetters(sample)), [sample]);
  const last = table.rows.length - 1;
  return (
    <TableFrame role="table" className={styles.long} style={style}>
      <Fragment key="head">{draw(table.head, "head", false)}</Fragment>
      {table.rows.map((rows, at) => (
        <tbody key={at} role="rowgroup" className={joinClasses(grows && at < last && styles.settled)}>
          {draw(table.head + rows, "rows", grows && at === last)}
        </tbody>
      ))}
    </TableFrame>
  );
}

function layOut(letters: number[]): React.CSSProperties {
  const width = (most: number) =>
    `calc(${letters.reduce((sum, some) => sum + Math.min(some, most), 0)}ch + ${letters.length * AROUND}px)`;
  const columns = letters.map((some) => `minmax(calc(${Math.min(some, NARROW)}ch + ${AROUND}px), ${some}fr)`);
  return {
    "--columns": columns.join(" "),
    minWidth: width(NARROW),
    width: `min(100%, ${width(Infinity)})`,
  } as React.CSSProperties;
}
