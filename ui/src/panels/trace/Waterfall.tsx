/** Rows of spans along the time, to be filtered, looked at closer and walked through with the arrows. */

import { useVirtualizer } from "@tanstack/react-virtual";
import {
  type CSSProperties,
  type KeyboardEvent,
  type RefObject,
  useEffect,
  useId,
  useMemo,
  useRef,
  useState,
} from "react";

import { formatDollars, formatShort } from "../../parts/amounts";
import { formatDuration, filterRows, type Kind, type Row, totalDuration } from "../../parts/spans";
import { Axis } from "./Axis";
import { LabelMark } from "../../parts/LabelMark";
import { Details, labelOf } from "./Details";
import { viewAround, panView, spanPosition, type View, wholeView, zoomView } from "./zoom";
import { joinClasses } from "../../parts/classes";
import panel from "../panels.module.css";
import styles from "./trace.module.css";

const KINDS: readonly (readonly [Kind, string])[] = [
  ["step", "Steps"],
  ["model", "Model calls"],
  ["tool", "Tools"],
  ["hook", "Hooks"],
];
const HEIGHT = 26;

export function Waterfall({ rows, run }: { rows: Row[]; run: string }) {
  const end = useMemo(() => totalDuration(rows), [rows]);
  const [chosenView, look] = useState<View | null>(null);
  const view = chosenView ?? wholeView(end); // grows with a run in progress
  const [kinds, setKinds] = useState<ReadonlySet<Kind>>(() => new Set<Kind>(["run", "step", "model", "tool"]));
  const [words, setWords] = useState("");
  const [chosen, choose] = useState("");
  const shown = useMemo(() => filterRows(rows, words, kinds), [rows, words, kinds]);
  const toggle = (kind: Kind) =>
    setKinds((old) => new Set(old.has(kind) ? [...old].filter((one) => one !== kind) : [...old, kind]));
  const selected = rows.find((row) => row.key === chosen);
  return (
    <div className={styles.waterfall}>
      <div className={styles.barOfTools}>
        <input
          type="search"
          aria-label="Filter spans"
          placeholder="Filter"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <div className={panel.segments} role="group" aria-label="Show">
          {KINDS.map(([kind, title]) => (
            <button key={kind} aria-pressed={kinds.has(kind)} onClick={() => toggle(kind)}>
              {title}
            </button>
          ))}
        </div>
        <div className={panel.segments} role="group" aria-label="Zoom">
          <button aria-label="Zoom in" onClick={() => look(zoomView(view, 0.5, end))}>
            +
          </button>
          <button aria-label="Zoom out" onClick={() => look(zoomView(view, 2, end))}>
            −
          </button>
          <button onClick={() => look(null)}>All</button>
        </div>
      </div>
      <Axis view={view} />
      {shown.length ? (
        <Rows rows={shown} view={view} look={look} end={end} chosen={chosen} choose={choose} />
      ) : (
        <p className="empty">No matching spans. Clear the filter, or show more kinds.</p>
      )}
      {selected ? (
        <Details
          key={selected.key}
          row={selected}
          run={run}
          close={() => choose("")}
          zoom={() => look(viewAround(selected.from, selected.ms, end))}
        />
      ) : (
        <p className={styles.note}>Use the arrow keys to select a span, Enter to zoom in.</p>
      )}
    </div>
  );
}

interface RowsProps {
  rows: Row[];
  view: View;
  look: (view: View) => void;
  end: number;
  chosen: string;
  choose: (key: string) => void;
}

function Rows({ rows, view, look, end, chosen, choose }: RowsProps) {
  const frame = useRef<HTMLDivElement>(null);
  const name = useId();
  const at = rows.findIndex((row) => row.key === chosen);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    estimateSize: () => HEIGHT,
    overscan: 12,
  });
  const height = virtual.scrollRect?.height; // the details of a span take some of it
  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: "auto" });
  }, [at, height, virtual]);
  const walk = (event: KeyboardEvent) => {
    const to = rowForKey(event.key, at, rows.length);
    const seen = zoomForKey(event.key, view, end, rows[at]);
    if (to === null && seen === null) return;
    event.preventDefault();
    if (to !== null) choose(rows[to]!.key);
    if (seen !== null) look(seen);
  };
  useWheel(frame, (event, share) => {
    if (event.ctrlKey)
      look(zoomView(view, event.deltaY > 0 ? 1.25 : 0.8, end, view.from + (view.to - view.from) * share));
    else look(panView(view, event.deltaY + event.deltaX > 0 ? 0.1 : -0.1, end));
  });
  return (
    <div
      ref={frame}
      className={styles.spans}
      role="tree"
      aria-label="Spans"
      tabIndex={0}
      aria-activedescendant={at >= 0 ? `${name}${chosen}` : undefined}
      onKeyDown={walk}
    >
      <div role="presentation" style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index]!;
          return (
            <OneRow
              key={row.key}
              id={`${name}${row.key}`}
              row={row}
              view={view}
              top={item.start}
              chosen={row.key === chosen}
              choose={() => choose(row.key)}
              zoom={() => look(viewAround(row.from, row.ms, end))}
            />
          );
        })}
      </div>
    </div>
  );
}

/** With Ctrl or Shift the wheel is for the times and not for the page; `share` is how far along them the pointer is. */
function useWheel(frame: RefObject<HTMLElement | null>, turn: (event: WheelEvent, share: number) => void): void {
  const latest = useRef(turn);
  latest.current = turn;
  useEffect(() => {
    const box = frame.current!;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault(); // else the page is made larger
      const times = box.querySelector("[data-times]")!.getBoundingClientRect();
      latest.current(event, Math.min(1, Math.max(0, (event.clientX - times.left) / times.width)));
    };
    box.addEventListener("wheel", wheel, { passive: false });
    return () => box.removeEventListener("wheel", wheel);
  }, [frame]);
}

function rowForKey(key: string, at: number, count: number): number | null {
  if (key === "ArrowDown") return Math.min(count - 1, at + 1);
  if (key === "ArrowUp") return Math.max(0, at - 1);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : null;
}

function zoomForKey(key: string, view: View, end: number, row: Row | undefined): View | null {
  if (key === "+" || key === "=") return zoomView(view, 0.5, end);
  if (key === "-") return zoomView(view, 2, end);
  if (key === "ArrowLeft") return panView(view, -0.2, end);
  if (key === "ArrowRight") return panView(view, 0.2, end);
  if (key === "0") return wholeView(end);
  return key === "Enter" && row ? viewAround(row.from, row.ms, end) : null;
}

interface OneRowProps {
  id: string;
  row: Row;
  view: View;
  top: number;
  chosen: boolean;
  choose: () => void;
  zoom: () => void;
}

function OneRow({ id, row, view, top, chosen, choose, zoom }: OneRowProps) {
  const bar = spanPosition(view, row.from, row.ms);
  const figures = [
    row.open ? "running" : formatDuration(row.ms),
    row.tokens ? `${formatShort(row.tokens)} tokens` : "",
    row.cost === null ? "" : formatDollars(row.cost),
  ]
    .filter(Boolean)
    .join(" · ");
  return (
    <div
      id={id}
      className={joinClasses(styles.span, row.failed && styles.failed)}
      data-kind={row.kind}
      role="treeitem"
      aria-level={row.depth + 1}
      aria-selected={chosen}
      style={{ transform: `translateY(${top}px)` }}
      onClick={choose}
      onDoubleClick={zoom}
    >
      <span className={styles.spanName} style={{ paddingLeft: Math.min(row.depth, 8) * 12 + 6 }}>
        <i aria-hidden="true" />
        {row.label}
        <span className="visually-hidden">
          , {row.kind}
          {row.failed ? ", failed" : ""},{" "}
        </span>
        <LabelMark label={labelOf(row.span.attributes ?? {})} source={row.label} />
      </span>
      <span className={styles.spanTime} data-times="">
        {bar && <i className={styles.spanBar} style={{ left: `${bar.left}%`, width: `max(2px, ${bar.width}%)` }} />}
        {bar && <small style={figurePosition(bar)}>{figures}</small>}
      </span>
    </div>
  );
}

/** Where there is room for the figures: before a bar that begins late, in one that is long, else behind it. */
function figurePosition({ left, width }: { left: number; width: number }): CSSProperties {
  if (left > 55) return { right: `calc(${100 - left}% + 4px)` };
  return { left: left + width > 62 ? `calc(${left}% + 4px)` : `calc(${left + width}% + 6px)` };
}
