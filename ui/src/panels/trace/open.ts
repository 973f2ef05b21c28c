/** Opens the trace of a run, or of the run that a message is of. */

import * as api from "../../api";
import { app, attempt, patch } from "../../state/app";

export async function openTrace(of: { run?: string; seq?: number }): Promise<void> {
  patch({ panel: "trace", run: of.run || (of.seq ? await runAt(of.seq) : "") });
}

/** What a user says stands in the log just before the run that answers it. */
async function runAt(seq: number): Promise<string> {
  const { thread } = app.get();
  const found = await attempt(() => api.threads.runs(thread));
  return found?.runs.find((run) => run.last == null || run.last >= seq)?.run_id ?? "";
}
