/** The models that runs may use, and the one that the user chose for each thread. */

import { models, type ModelChoice } from "../api/settings";
import { createStore, useStore } from "./store";

const PLACE = "wick-models";
const MOST_THREADS = 200; // threads with a stored choice

interface Models {
  known: ModelChoice[];
  chosen: Record<string, string>; // by thread
}

const store = createStore<Models>({ known: [], chosen: loadChosen() });

export const useModels = <T>(select: (state: Models) => T): T => useStore(store, select);

/** The model of a thread; empty for the agent's own. A model that is not allowed any more is not used. */
export function modelOf(thread: string): string {
  const { known, chosen } = store.get();
  const name = chosen[thread] ?? "";
  return known.some((one) => one.name === name) ? name : "";
}

export async function refreshModels(): Promise<void> {
  const found = await models().catch(() => null);
  if (found) store.set((old) => ({ ...old, known: found.models }));
}

export function chooseModel(thread: string, name: string): void {
  store.set((old) => {
    const { [thread]: _, ...others } = old.chosen;
    const kept = Object.fromEntries(Object.entries(others).slice(-MOST_THREADS));
    return { ...old, chosen: name ? { ...kept, [thread]: name } : kept };
  });
  try {
    localStorage.setItem(PLACE, JSON.stringify(store.get().chosen));
  } catch {
    // the storage is full: the choice holds until a reload
  }
}

/** A conversation has its thread now: its choice moves along, and the next new one starts with it, too. */
export function adoptModel(thread: string): void {
  const name = store.get().chosen[""] ?? "";
  if (name) chooseModel(thread, name);
}

function loadChosen(): Record<string, string> {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? "{}") as Record<string, unknown>;
    return Object.fromEntries(
      Object.entries(found).filter((row): row is [string, string] => typeof row[1] === "string"),
    );
  } catch {
    return {};
  }
}
