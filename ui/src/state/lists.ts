/** Lists from the server: agents, threads, questions. Unchanged objects keep their identity. */

import * as api from "../api";
import { app, tryRequest, patchApp } from "./app";

export async function refreshLists(): Promise<void> {
  const [agents, page, waiting] = await Promise.all([api.agents.list(), api.threads.list(), api.approvals.list()]);
  const wanted =
    app.get().agent || (agents.agents.find((one) => one.agent_id === "default") ?? agents.agents[0])?.agent_id || "";
  patchApp({
    agents: agents.agents,
    agent: wanted,
    threads: page.threads,
    more: page.next ?? "",
    approvals: waiting.approvals,
  });
}

export async function refreshAgents(): Promise<void> {
  const found = await api.agents.list().catch(() => null);
  if (!found || JSON.stringify(found.agents) === JSON.stringify(app.get().agents)) return;
  const { agent, thread } = app.get();
  const gone = !thread && !found.agents.some((one) => one.agent_id === agent); // an open thread stays the one of its agent
  patchApp({ agents: found.agents, ...(gone ? { agent: found.agents[0]?.agent_id ?? "" } : {}) });
}

export async function moreThreads(): Promise<void> {
  const { more } = app.get();
  if (!more) return;
  await tryRequest(async () => {
    const page = await api.threads.list(more);
    app.set((old) => ({ ...old, threads: joinThreads(old.threads, page.threads), more: page.next ?? "" }));
  });
}

/** The latest threads; older ones that were asked for stay. */
export async function listThreads(): Promise<void> {
  const page = await api.threads.list();
  app.set((old) => {
    const now = mergePage(old.threads, old.more, page.threads, page.next ?? "");
    return now.threads === old.threads && now.more === old.more ? old : { ...old, ...now };
  });
}

/** The same after a change by this window, which the server reports while it is connected. */
export const listAgain = (): Promise<void> =>
  app.get().pushed ? Promise.resolve() : listThreads().catch(() => undefined);

export function mergePage(
  old: api.Thread[],
  more: string,
  page: api.Thread[],
  next: string,
): { threads: api.Thread[]; more: string } {
  const oldest = page.at(-1)?.updated ?? 0;
  const rest = next ? old.filter((one) => one.updated < oldest) : [];
  const threads = joinThreads(
    page.map((one) => reuseThread(old, one)),
    rest,
  );
  const unchanged = threads.length === old.length && threads.every((one, at) => one === old[at]);
  return { threads: unchanged ? old : threads, more: rest.length ? more : next };
}

function reuseThread(old: api.Thread[], now: api.Thread): api.Thread {
  const before = old.find((one) => one.id === now.id);
  return before && JSON.stringify(before) === JSON.stringify(now) ? before : now;
}

function joinThreads(first: api.Thread[], more: api.Thread[]): api.Thread[] {
  const known = new Set(first.map((one) => one.id));
  return [...first, ...more.filter((one) => !known.has(one.id))];
}

export async function refreshApprovals(): Promise<void> {
  const waiting = await api.approvals.list().catch(() => null);
  if (waiting) patchApp({ approvals: waiting.approvals });
}
