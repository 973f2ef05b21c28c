/** Tasks as stored in the thread, merged with later events. */

import type { Task } from "../state/fold";

const OPEN = new Set(["running", "waiting"]);

export function listTasks(kept: unknown, live: Task[]): Task[] {
  const known =
    kept && typeof kept === "object"
      ? Object.entries(kept as Record<string, Record<string, unknown>>).map(([id, one]) => toTask(id, one))
      : [];
  const heard = new Map(live.map((one) => [one.id, one]));
  const both = known.map((one) => (OPEN.has(one.status) ? (heard.get(one.id) ?? one) : one));
  return [...both, ...live.filter((one) => !known.some((old) => old.id === one.id))];
}

function toTask(id: string, record: Record<string, unknown>): Task {
  const word = (name: string) => (typeof record[name] === "string" ? record[name] : "");
  return {
    id,
    agent: word("agent"),
    prompt: word("prompt"),
    status: word("status"),
    text: word("answer") || word("reason"),
  };
}
