import { useEffect, useState } from "react";

import * as api from "../api";
import { Dialog } from "../shell/Dialog";
import { notify, runOnce, tryRequest } from "../state/app";
import { formatPlural } from "../parts/amounts";
import { Diff } from "./AboutCall";
import { readUnified } from "./diff";
import styles from "./chat.module.css";

/** A preview of restoring the files before an entry, and its confirmation. */
export function UndoFiles({ thread, seq, close }: { thread: string; seq: number; close: () => void }) {
  const [preview, setPreview] = useState<api.UndoPreview>();
  const [problem, setProblem] = useState("");
  const [selected, setSelected] = useState<string>(""); // a path, or empty for all
  useEffect(() => {
    let late = false;
    api.threads.fileChanges(thread, seq).then(
      (found) => !late && setPreview(found),
      (error: unknown) => !late && setProblem(error instanceof Error ? error.message : String(error)),
    );
    return () => void (late = true);
  }, [thread, seq]);
  const restore = async () => {
    const paths = selected ? [selected] : [];
    const report = await runOnce(`undo ${thread}`, () =>
      tryRequest(() => api.threads.restoreFiles(thread, seq, paths)),
    );
    if (!report) return;
    const left = Object.entries(report.left).map(([path, reason]) => `${path}: ${reason}`);
    notify(
      [`Restored ${formatPlural(report.restored.length, "path")}.`, ...left].join("\n"),
      left.length ? "error" : "info",
    );
    close();
  };
  const changes = preview?.changes.filter((change) => !selected || change.path === selected) ?? [];
  return (
    <Dialog title="Undo files" close={close}>
      <h2>Undo files</h2>
      {problem && <p role="alert">{problem}</p>}
      {!preview && !problem && <p>Comparing files…</p>}
      {preview && !preview.changes.length && <p>No changes: the files are as they were before this message.</p>}
      {preview && preview.changes.length > 0 && (
        <>
          <p className={styles.hint}>The files become as they were before this message. The thread stays as it is.</p>
          <label className={styles.undoPaths}>
            Restore
            <select value={selected} onChange={(event) => setSelected(event.target.value)}>
              <option value="">all of {formatPlural(preview.changes.length, "path")}</option>
              {preview.changes.map((change) => (
                <option key={change.path}>{change.path}</option>
              ))}
            </select>
          </label>
        </>
      )}
      {Boolean(changes.length || preview?.not_undone.length) && (
        <div className={styles.undone} tabIndex={0} role="region" aria-label="Changes">
          {preview && preview.not_undone.length > 0 && (
            <>
              <h3>Not undone</h3>
              <ul>
                {preview.not_undone.map((use) => (
                  <li key={use.seq}>
                    <code>{use.tool}</code>: {use.reason}
                  </li>
                ))}
              </ul>
            </>
          )}
          {changes.map((change) => (
            <Diff key={change.path} path={`${change.path} (${change.kind})`} lines={readUnified(change.diff)} />
          ))}
        </div>
      )}
      <div className="choices">
        <button data-first onClick={close}>
          Cancel
        </button>
        <button className="main" disabled={!changes.length} onClick={() => void restore()}>
          Restore
        </button>
      </div>
    </Dialog>
  );
}
