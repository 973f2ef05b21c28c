/** Who is there: signing in and out, and keeping up with what others change. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, attempt, NOBODYS, notify, patch } from "./app";
import { listed, refresh, refreshAgents, refreshApprovals } from "./lists";
import { followNothing, isFollowed, settle } from "./talk";
import { keepAddress, openThread, threadInAddress } from "./threads";

const PULSE_MS = 4_000;
let beats = 0;

export async function begin(): Promise<void> {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) history.replaceState(null, "", location.pathname); // it works once, and is nobody else's business
  try {
    await enter(ticket ? await api.auth.signIn({ ticket }) : await api.auth.me());
  } catch (error) {
    if (error instanceof ApiError && error.status === 0) return void setTimeout(() => void begin(), 2_000);
    patch({ me: null });
    if (ticket && error instanceof ApiError) notify(error.message, "error");
  }
}

export async function signIn(token: string): Promise<void> {
  const refused = (error: unknown) => notify(error instanceof ApiError && error.status === 401 ? "Nobody has this token. Look at it again, or ask whoever runs the server for one." : String(error instanceof Error ? error.message : error), "error");
  await api.auth.signIn({ token }).then(enter).catch(refused);
}

let whose = ""; // what is on the page

async function enter(me: api.Me): Promise<void> {
  if (whose && whose !== me.id) forget();
  whose = me.id;
  const wanted = threadInAddress() || app.get().thread;
  patch({ me, thread: wanted });
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
  patch(NOBODYS);
  history.replaceState(null, "", location.pathname);
}

/** Keep the address and the lists up to date, for as long as the page is there. */
export function keepUp(): void {
  keepAddress();
  setInterval(() => void pulse(), PULSE_MS);
  addEventListener("online", () => void pulse());
  addEventListener("visibilitychange", () => void pulse());
}

/** Look for what has changed: in another window, by a program, or while the connection was lost. */
export async function pulse(): Promise<void> {
  if (!app.get().me || document.visibilityState === "hidden") return;
  try {
    await listed();
    if (!app.get().online) patch({ online: true });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patch({ me: null });
    if (error instanceof ApiError && error.status === 0) patch({ online: false });
    return;
  }
  await catchUp();
  if (++beats % 4 === 0) await refreshAgents();
}

async function catchUp(): Promise<void> {
  const { threads, thread, approvals, conversations } = app.get();
  const asked = threads.reduce((sum, one) => sum + (one.asking ?? 0), 0);
  if (asked !== approvals.length) await refreshApprovals();
  const row = threads.find((one) => one.id === thread);
  const known = conversations[thread];
  if (row && known && !isFollowed(thread) && row.last > known.last) await settle(thread);
}
