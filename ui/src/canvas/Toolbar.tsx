/** Actions of the active tab. */

import { useState } from "react";

import * as api from "../api";
import { Icon } from "../shell/Icon";
import { tryRequest } from "../state/app";
import { download } from "./download";
import { saveAs } from "./tabFiles";
import { type View, VIEW_NAMES, viewsOf } from "./kind";
import { applySpelling } from "./lineFormat";
import { closeTab, isChanged, redo, type Tab, undo, updateTab } from "./tabs";
import { versionsOf } from "./versions";
import styles from "./canvas.module.css";

interface Props {
  tab: Tab;
  naming: boolean; // it is asked where to save it
  name: (asked: boolean) => void;
  keep: () => void;
}

export function Toolbar({ tab, naming, name, keep }: Props) {
  if (naming) return <SaveAs tab={tab} done={() => name(false)} />;
  const text = tab.state === "ready" && !tab.bytes;
  return (
    <div className={styles.canvasTools} role="toolbar" aria-label={`Actions for ${tab.name}`}>
      <Views tab={tab} />
      <span className="grow" />
      {text && (
        <button className="plain" aria-label="Undo" title="Undo" onClick={() => void stepTab(tab, "undo")}>
          <Icon name="undo" />
        </button>
      )}
      {text && (
        <button className="plain" aria-label="Redo" title="Redo" onClick={() => void stepTab(tab, "redo")}>
          <Icon name="redo" />
        </button>
      )}
      <button
        className="plain"
        aria-label="Download"
        title="Download"
        disabled={tab.state !== "ready"}
        onClick={() => void downloadTab(tab)}
      >
        <Icon name="down" />
      </button>
      {text && !tab.cut && (
        <button className="plain" aria-label="Save as" title="Save as…" onClick={() => name(true)}>
          <Icon name="copy" />
        </button>
      )}
      <span className={styles.lastTools}>
        {text && !tab.cut && (
          <button
            className={isChanged(tab) ? "main" : undefined}
            disabled={!isChanged(tab) && !tab.gone}
            onClick={keep}
          >
            Save
          </button>
        )}
        <button className="plain" aria-label={`Close ${tab.name}`} title="Close" onClick={() => closeTab(tab.id)}>
          <Icon name="close" />
        </button>
      </span>
    </div>
  );
}

function Views({ tab }: { tab: Tab }) {
  if (tab.state !== "ready") return null;
  const views: View[] = [
    ...viewsOf(tab.kind),
    ...(tab.view === "diff" || versionsOf(tab).length ? (["diff"] as const) : []),
  ];
  if (views.length < 2) return null;
  return (
    <div className={styles.views} role="group" aria-label="View as">
      {views.map((view) => (
        <button key={view} aria-pressed={tab.view === view} onClick={() => updateTab(tab.id, { view })}>
          {VIEW_NAMES[view]}
        </button>
      ))}
    </div>
  );
}

/** One step back or forth: the editor's own where it is shown, else the tab's. */
async function stepTab(tab: Tab, which: "undo" | "redo"): Promise<void> {
  if (tab.view === "code") (await import("./Editor")).stepEditor(tab.id, which);
  else (which === "undo" ? undo : redo)(tab.id);
}

async function downloadTab(tab: Tab): Promise<void> {
  const whole =
    tab.cut && tab.file
      ? await tryRequest(() => api.files.bytes(tab.file!.agent, tab.file!.path, tab.file!.thread))
      : (tab.bytes ?? new Blob([applySpelling(tab.text, tab.spelling)], { type: "text/plain" }));
  if (whole) download(whole, tab.name);
}

function SaveAs({ tab, done }: { tab: Tab; done: () => void }) {
  const [path, setPath] = useState(tab.file?.path ?? tab.name);
  const [busy, setBusy] = useState(false);
  const submit = async (event: React.FormEvent) => {
    event.preventDefault();
    if (busy || !path.trim()) return;
    setBusy(true);
    if (await saveAs(tab.id, path.trim())) done();
    else setBusy(false);
  };
  return (
    <form
      className={styles.canvasTools}
      onSubmit={(event) => void submit(event)}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          done();
        }
      }}
    >
      <label htmlFor="save-as">Save as</label>
      <input
        id="save-as"
        className="grow"
        autoFocus
        value={path}
        onChange={(event) => setPath(event.target.value)}
        onFocus={(event) => event.target.select()}
      />
      <button type="button" onClick={done}>
        Cancel
      </button>
      <button className="main" disabled={busy || !path.trim()}>
        Save
      </button>
    </form>
  );
}
