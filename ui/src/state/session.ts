/** The session: sign-in, sign-out, and updates. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app, tryRequest, NOBODYS, notify, runOnce, patchApp } from "./app";
import { saveDrafts, loadDrafts } from "./drafts";
import type { Conversation } from "./fold";
import { closeChanges, openChanges } from "./changes";
import { applyChanges } from "./push";
import { followNothing, isFollowed, settle } from "./runStream";
import { listThreads, refreshLists, refreshAgents, refreshApprovals } from "./lists";
import { sendNothing } from "./talk";
import { readAddress } from "./address";
import { keepAddress, openThread, handleMissing } from "./threads";

const FALLBACK_MS = 10_000; // between two polls while the server reports no changes
const SAFETY_MS = 120_000; // and while it does: a command may write into the same database
let polled = 0;

const ticketIn = (hash: string): string => new URLSearchParams(hash.slice(1)).get("ticket") ?? "";

export async function startSession(): Promise<void> {
  const ticket = ticketIn(location.hash);
  if (ticket) history.replaceState(null, "", location.pathname); // it is valid once, and must not be shared
  try {
    await enterSession(ticket ? await api.auth.signIn({ ticket }) : await api.auth.me());
    patchApp({ online: true });
  } catch (error) {
    if (error instanceof ApiError && error.passes) return restartSession(error);
    patchApp({ me: null });
    if (ticket && error instanceof ApiError) notify(error.message, "error");
  }
}

/** Retry while the server is unreachable or fails, without a new sign-in. */
function restartSession(error: ApiError): void {
  if (error.status === 0) patchApp({ online: false });
  else notify(error.message, "error");
  setTimeout(() => void startSession(), 2_000);
}

export async function signIn(token: string): Promise<void> {
  const refused = (error: unknown) =>
    notify(
      error instanceof ApiError && error.status === 401
        ? "Invalid token. Check it, or ask your administrator for a new one."
        : String(error instanceof Error ? error.message : error),
      "error",
    );
  await api.auth.signIn({ token }).then(enterSession).catch(refused);
}

/** Sign in with the part of a one-time link after `#`. */
export async function signInByLink(hash: string): Promise<void> {
  const refused = (error: unknown) => notify(error instanceof Error ? error.message : String(error), "error");
  await api.auth
    .signIn({ ticket: ticketIn(hash.trim()) })
    .then(enterSession)
    .catch(refused);
}

let whose = ""; // the user whose data is on the page

async function enterSession(me: api.Me): Promise<void> {
  if (whose && whose !== me.id) clearSession();
  whose = me.id;
  const { thread, files, file, ...layout } = readAddress();
  const wanted = thread || app.get().thread;
  patchApp({
    me,
    thread: wanted,
    opening: wanted,
    ...(layout.panel || layout.below ? layout : {}),
    files,
    file,
    drafts: { ...loadDrafts(me.id), ...app.get().drafts },
  });
  await refreshLists();
  openChanges(me.id);
  if (wanted) await openThread(wanted);
  if (files.length) await (await import("../canvas/open")).openFiles(files, file);
}

export async function signOut(): Promise<void> {
  await tryRequest(() => api.auth.signOut());
  clearSession();
  patchApp({ me: null });
}

/** Remove all data of a user. */
function clearSession(): void {
  closeChanges();
  followNothing();
  sendNothing();
  patchApp(NOBODYS);
  history.replaceState(null, "", location.pathname);
}

/** Keep URL, drafts and lists up to date while the page is open. */
export function startUpdates(): void {
  keepAddress();
  saveDrafts();
  applyChanges();
  app.subscribe(() => app.get().me === null && app.get().pushed && closeChanges());
  addEventListener("hashchange", () => ticketIn(location.hash) && void startSession()); // a sign-in link pasted into an open page
  setInterval(
    () => Date.now() - polled >= (app.get().pushed ? SAFETY_MS : FALLBACK_MS) && void pollOnce(),
    FALLBACK_MS,
  );
  addEventListener("online", () => void pollOnce());
  addEventListener("visibilitychange", () => (isHidden() ? followNothing() : void pollOnce()));
}

const isHidden = (): boolean => document.visibilityState === "hidden";

/** Read the lists again: after lost events, or while the server reports none. */
export async function pollOnce(): Promise<void> {
  if (!app.get().me) return;
  polled = Date.now();
  await runOnce("pulse", pollLists);
}

async function pollLists(): Promise<void> {
  try {
    await listThreads();
    if (!app.get().online) patchApp({ online: true });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) patchApp({ me: null });
    if (error instanceof ApiError && error.status === 0) patchApp({ online: false });
    return;
  }
  const { threads, approvals } = app.get();
  const asked = threads.reduce((sum, one) => sum + (one.asking ?? 0), 0);
  if (asked !== approvals.length) await refreshApprovals();
  await catchUp();
  if (!app.get().pushed) await refreshAgents();
}

let wasListed = ""; // the open thread, if it was in the list

/** Read the open thread if it is behind its row in the list. */
export async function catchUp(): Promise<void> {
  if (isHidden()) return;
  const { threads, thread, conversations } = app.get();
  const row = threads.find((one) => one.id === thread);
  const known = conversations[thread];
  const deleted = !row && thread !== "" && wasListed === thread;
  wasListed = row ? thread : "";
  if (!known || (!deleted && !(row && isBehind(row, known)))) return;
  if ((await settle(thread)) === "gone") handleMissing(thread);
}

/** True if a conversation is behind its thread. */
function isBehind(row: api.Thread, known: Conversation): boolean {
  if (known.pending.some((one) => one.key.startsWith("sent-"))) return false; // this window is sending a message
  const waits = known.pending.filter((one) => one.key.startsWith("q")).length;
  if ((row.queued ?? 0) !== waits) return true;
  return !isFollowed(row.id) && (row.last > known.last || Boolean(row.run_id));
}
