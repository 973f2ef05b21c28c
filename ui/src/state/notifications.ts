/** Desktop notifications while no window is seen: an agent asks, or a run has ended. The user switches them on. */

import type * as api from "../api";
import { app, notify, patchApp } from "./app";
import { type Change, onChange } from "./changes";
import { refreshApprovals } from "./lists";
import { openThread } from "./threads";

const STORED = "wick-notifications";
const SEEN = "wick seen"; // a lock that each visible window holds

/** False without HTTPS, and in browsers without notifications. */
export const canNotify = (): boolean => "Notification" in globalThis && isSecureContext && "locks" in navigator;

export const storedNotifies = (): boolean =>
  canNotify() && localStorage.getItem(STORED) === "on" && Notification.permission === "granted";

export async function toggleNotifications(): Promise<void> {
  if (app.get().notifies) return setNotifies(false);
  const permission = await Notification.requestPermission();
  if (permission === "granted") return setNotifies(true);
  notify("The browser blocks notifications of this page. Allow them in its site settings, then try again.", "error");
}

function setNotifies(notifies: boolean): void {
  localStorage.setItem(STORED, notifies ? "on" : "off");
  patchApp({ notifies });
  notify(notifies ? "Notifications are on, while no window is visible." : "Notifications are off.");
}

interface Known {
  last: number;
  run: string;
  asking: number;
}

const known = new Map<string, Known>(); // the threads as they were, by id

/** Watch for questions and ends of runs, from now on. */
export function watchNotifications(): void {
  if (!canNotify()) return;
  holdWhileSeen();
  onChange(({ event, data }: Change) => {
    if (event === "thread") check(data as unknown as api.Thread);
  });
}

function check(row: api.Thread): void {
  const before = known.get(row.id) ?? knownRow(row.id);
  known.set(row.id, toKnown(row));
  const what = findNews(before, row);
  if (what && app.get().notifies && document.visibilityState === "hidden") void show(row, what);
}

/** What a change of a thread is about; empty for others. */
export function findNews(before: Known | undefined, row: api.Thread): "" | "asks" | "ended" {
  if ((row.asking ?? 0) > (before?.asking ?? 0)) return "asks";
  const worked = Boolean(before?.run) || row.last > (before?.last ?? 0);
  return worked && !row.run_id && !row.queued ? "ended" : "";
}

const toKnown = (row: api.Thread): Known => ({ last: row.last, run: row.run_id ?? "", asking: row.asking ?? 0 });

function knownRow(id: string): Known | undefined {
  const row = app.get().threads.find((one) => one.id === id);
  return row && toKnown(row);
}

async function show(row: api.Thread, what: "asks" | "ended"): Promise<void> {
  if (await isSeen()) return;
  if (what === "asks") await refreshApprovals();
  const asked = app.get().approvals.find((one) => one.thread_id === row.id);
  const title = row.title || "Untitled";
  const body = what === "asks" ? (asked?.question ?? "The agent has a question.") : "The run has ended.";
  try {
    const shown = new Notification(what === "asks" ? `${title}: needs approval` : title, {
      body: body.slice(0, 200),
      tag: `wick ${row.id}`, // a later one replaces it, also that of another window
      icon: new URL("wick.svg", document.baseURI).href,
    });
    shown.onclick = () => {
      window.focus();
      void openThread(row.id);
      shown.close();
    };
  } catch {
    patchApp({ notifies: false }); // phones have no notifications of pages
  }
}

/** Is another window of this page visible? */
async function isSeen(): Promise<boolean> {
  const { held = [] } = await navigator.locks.query();
  return held.some((lock) => lock.name === SEEN);
}

function holdWhileSeen(): void {
  let release: (() => void) | undefined;
  const update = () => {
    const visible = document.visibilityState === "visible";
    release?.();
    release = undefined;
    if (visible)
      void navigator.locks.request(SEEN, { mode: "shared" }, () => new Promise<void>((done) => (release = done)));
  };
  addEventListener("visibilitychange", update);
  update();
}
