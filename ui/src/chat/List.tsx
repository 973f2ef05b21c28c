/** Messages, drawn only where they are looked at, however many there are. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import { Failing } from "../shell/Failing";
import { patchApp, useApp } from "../state/app";
import type { Item, UserMessage } from "../state/fold";
import { likelyHeight } from "./heights";
import { EndedView, ReplyView, UserMessageView } from "./Items";
import { registerMove } from "./navigation";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

const NEAR_END = 80; // pixels within which the end is followed

export function List({ items, pending }: { items: Item[]; pending: UserMessage[] }) {
  const all = useMemo<Item[]>(() => (pending.length ? [...items, ...pending] : items), [items, pending]);
  const getItemKey = useCallback((at: number) => rowKey(all[at]!), [all]); // another function would place all rows anew
  const place = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: all.length,
    getScrollElement: () => place.current,
    estimateSize: (at) => likelyHeight(all[at]!),
    overscan: 4,
    getItemKey,
  });
  const [atEnd, toEnd, leave] = useEnd(place);
  useOwnMessage(pending, toEnd);
  useGoal(all, (at) => {
    leave();
    virtual.scrollToIndex(at, { align: "center" });
  });
  useMoves(place, all.length, (at) => {
    leave();
    virtual.scrollToIndex(at, { align: "auto" });
  });
  return (
    <div className={styles.list}>
      <div className={styles.items} ref={place} tabIndex={0} role="log" aria-live="off" aria-label="Messages">
        <div className={styles.all} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((row) => (
            <Row
              key={row.key}
              at={row.index}
              start={row.start}
              item={all[row.index]!}
              waits={row.index >= items.length}
              measure={virtual.measureElement}
            />
          ))}
        </div>
      </div>
      {!atEnd && (
        <button className={styles.toEnd} onClick={toEnd}>
          ↓ Latest
        </button>
      )}
    </div>
  );
}

interface RowProps {
  at: number;
  start: number;
  item: Item;
  waits: boolean;
  measure: (row: HTMLDivElement | null) => void;
}

const Row = memo(function Row({ at, start, item, waits, measure }: RowProps) {
  return (
    <div
      className={joinClasses(styles.item, waits && styles.pending)}
      data-index={at}
      ref={measure}
      style={{ transform: `translateY(${start}px)` }}
    >
      <Failing what="This message">
        <Show item={item} waits={waits} />
      </Failing>
    </div>
  );
});

/** Versions of a message are one row, so that switching them keeps the focus. */
function rowKey(item: Item): string {
  if (item.kind === "ended") return item.key;
  if (item.branches) return `b${item.branches[0]}`;
  return item.kind === "reply" ? (item.born ?? item.key) : item.key;
}

function Show({ item, waits }: { item: Item; waits: boolean }) {
  if (item.kind === "user")
    return (
      <>
        <UserMessageView message={item} />
        {waits && (
          <small className={styles.waits}>
            {item.key.startsWith("sent-") ? "Sending…" : "The agent reads this at its next step."}
          </small>
        )}
      </>
    );
  if (item.kind === "reply") return <ReplyView reply={item} />;
  return <EndedView ended={item} />;
}

const INPUT_MS = 1_000; // a scroll within this time after an input is of the user
const INPUTS = ["wheel", "touchmove", "pointerdown", "pointermove", "keydown"] as const;

/** Stay at the end while the content or the space changes, unless the user scrolled up. */
function useEnd(place: React.RefObject<HTMLDivElement | null>): [boolean, () => void, () => void] {
  const [atEnd, setAtEnd] = useState(true);
  const follows = useRef(true);
  const toEnd = useCallback(() => {
    follows.current = true;
    place.current?.scrollTo({ top: place.current.scrollHeight });
  }, [place]);
  useLayoutEffect(() => {
    const box = place.current!;
    let before = box.scrollTop;
    let input = -Infinity;
    const note = (event: Event) => {
      if (event.type !== "pointermove" || (event as PointerEvent).buttons) input = performance.now();
    };
    const look = () => {
      const near = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
      const byUser = performance.now() - input < INPUT_MS;
      if (near) follows.current = true;
      else if (byUser && box.scrollTop < before) follows.current = false; // a reflow scrolls up too, and leaves nothing
      before = box.scrollTop;
      setAtEnd(near || follows.current);
    };
    const grow = new ResizeObserver(() => follows.current && box.scrollTo({ top: box.scrollHeight }));
    grow.observe(box);
    grow.observe(box.firstElementChild!);
    box.addEventListener("scroll", look, { passive: true });
    for (const kind of INPUTS) box.addEventListener(kind, note, { passive: true });
    return () => {
      grow.disconnect();
      box.removeEventListener("scroll", look);
      for (const kind of INPUTS) box.removeEventListener(kind, note);
    };
  }, [place]);
  return [atEnd, toEnd, () => void (follows.current = false)];
}

/** Show a message that is sent from here, wherever the user has scrolled to. */
function useOwnMessage(pending: UserMessage[], toEnd: () => void): void {
  const sent = pending.findLast((one) => one.key.startsWith("sent-"))?.key;
  useEffect(() => {
    if (sent) toEnd();
  }, [sent, toEnd]);
}

/** Go to the entry that is looked for, once it is there. */
function useGoal(items: Item[], show: (at: number) => void): void {
  const goal = useApp((state) => state.goal);
  useEffect(() => {
    if (!goal || !items.length) return;
    const at = items.findIndex((item) => item.seq >= goal);
    patchApp({ goal: 0 });
    if (at >= 0) requestAnimationFrame(() => show(at));
  });
}

function useMoves(place: React.RefObject<HTMLDivElement | null>, count: number, show: (at: number) => void): void {
  useEffect(() =>
    registerMove((by) => {
      const box = place.current!;
      const now = document.activeElement?.closest<HTMLElement>("[data-index]")?.dataset["index"];
      const next = Math.max(0, Math.min(count - 1, now === undefined ? count - 1 : Number(now) + by));
      show(next);
      requestAnimationFrame(() =>
        requestAnimationFrame(() =>
          box.querySelector<HTMLElement>(`[data-index="${next}"] article, [data-index="${next}"] p`)?.focus(),
        ),
      );
    }),
  );
}
