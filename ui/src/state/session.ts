/** Who is there: signing in and out, and keeping up with what others change. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, NOBODYS, notify, once, patch } from "./app";
import { keepDrafts, keptDrafts } from "./drafts";
import type { Conversation } from "./fold";
import { followNothing, isFollowed, settle } from "./following";
import { listed, refresh, refreshAgents, refreshApprovals } from "./lists";
import { sendNothing } from "./talk";
import { keepAddress, openThread, threadInAddress, vanished } from "./threads";

const PULSE_MS = 4_000;
let beats = 0;

export async function begin(): Promise<void> {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) history.replaceState(null, "", location.pathname); // it works once, and is nobody else's business
  try {
    await enter(ticket ? await api.auth.signIn({ ticket }) : await api.auth.me());
    patch({ online: true });
  } catch (error) {
    if (error instanceof ApiError && error.passes) return beginAgain(error);
    patch({ me: null });
    if (ticket && error instanceof ApiError) notify(error.message, "error");
  }
}

/** The server is not there, or not well: that is no reason to sign in again. */
function beginAgain(error: ApiError): void {
  if (error.status === 0) patch({ online: false });
  else notify(error.message, "error");
  setTimeout(() => void begin(), 2_000);
}

export async function signIn(token: string): Promise<void> {
  const refused = (error: unknown) => notify(error instanceof ApiError && error.status === 401 ? "Invalid token. Check it, or ask your administrator for a new one." : String(error instanceof Error ? error.message : error), "error");
  await api.auth.signIn({ token }).then(enter).catch(refused);
}

let whose = ""; // what is on the page

async function enter(me: api.Me): Promise<void> {
  if (whose && whose !== me.id) forget();
  whose = me.id;
  const wanted = threadInAddress() || app.get().thread;
  patch({ me, thread: wanted, opening: wanted, drafts: { ...keptDrafts(me.id), ...app.get().drafts } });
  await refresh();
  if (wanted) await openThread(wanted);
}

export async function signOut(): Promise<void> {
  await attempt(() => api.auth.signOut());
  forget();
  patch({ me: null });
}

/** Nothing of somebody's stays for who comes next. */
function forget(): void {
  followNothing();
  sendNothing();
  patch(NOBODYS);
  history.replaceState(null, "", location.pathname);
}

/** Keep the address, what is written and the lists up to date, for as long as the page is there. */
export function keepUp(): void {
  keepAddress();
  keepDrafts();
  setInterval(() => void pulse(), PULSE_MS);
  addEventListener("online", () => void pulse());
  addEventListener("visibilitychange", () => (isHidden() ? followNothing() : void pulse()));
}

const isHidden = (): boolean => document.visibilityState === "hidden";

/** Look for what has changed: in another window, by a program, or while the connection was lost. */
export async function pulse(): Promise<void> {
  if (!app.get().me || (isHidden() && ++beats % 5)) return; // a window that nobody sees looks now and then, for its title
  await once("pulse", look);
}

async function look(): Promise<void> {
  try {
    await listed();
    if (!app.get().online) patch({ online: true });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patch({ me: null });
    if (error instanceof ApiError && error.status === 0) patch({ online: false });
    return;
  }
  const { threads, approvals } = app.get();
  const asked = threads.reduce((sum, one) => sum + (one.asking ?? 0), 0);
  if (asked !== approvals.length) await refreshApprovals();
  if (isHidden()) return;
  await catchUp();
  if (++beats % 4 === 0) await refreshAgents();
}

let wasListed = ""; // the open thread, if it was in the list

async function catchUp(): Promise<void> {
  const { threads, thread, conversations } = app.get();
  const row = threads.find((one) => one.id === thread);
  const known = conversations[thread];
  const deleted = !row && thread !== "" && wasListed === thread;
  wasListed = row ? thread : "";
  if (!known || (!deleted && !(row && behind(row, known)))) return;
  if ((await settle(thread)) === "gone") vanished(thread);
}

/** Whether a conversation lacks something that its thread has. */
function behind(row: api.Thread, known: Conversation): boolean {
  const waits = known.pending.filter((one) => one.key.startsWith("q")).length;
  if ((row.queued ?? 0) !== waits) return true;
  return !isFollowed(row.id) && (row.last > known.last || Boolean(row.run_id));
}
