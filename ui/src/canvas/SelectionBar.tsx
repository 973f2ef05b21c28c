/** Actions for the selected text: ask about it, or have it changed. */

import { useState } from "react";

import { formatPlural } from "../parts/amounts";
import { otherAgent } from "../state/threads";
import { useApp } from "../state/app";
import { askAbout, requestChange } from "./changes";
import { type Selected, useSelected } from "./selection";
import type { Tab } from "./tabs";
import styles from "./change.module.css";

type Action = "ask" | "change";

export function SelectionBar({ tab }: { tab: Tab }) {
  const now = useSelected(tab.id);
  const [asked, setAsked] = useState<{ action: Action; part: Selected } | null>(null);
  const blocked = useApp((state) => otherAgent(state) !== "");
  if (asked) return <Request tab={tab} {...asked} done={() => setAsked(null)} />;
  if (!now || !now.text.trim() || blocked) return null;
  const begin = (action: Action) => setAsked({ action, part: now });
  const lines = now.text.trimEnd().split("\n").length;
  return (
    <div className={styles.bar} role="group" aria-label="Selection">
      <small>{formatPlural(lines, "line")} selected</small>
      <span className="grow" />
      <button onClick={() => begin("ask")}>Ask about this</button>
      {!tab.cut && now.from >= 0 && <button onClick={() => begin("change")}>Change this</button>}
    </div>
  );
}

function Request({ tab, action, part, done }: { tab: Tab; action: Action; part: Selected; done: () => void }) {
  const [words, setWords] = useState("");
  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    if (!words.trim()) return;
    done();
    void (action === "ask" ? askAbout : requestChange)(tab, part, words.trim());
  };
  const label = action === "ask" ? "Question about the selection" : "Change of the selection";
  return (
    <form
      className={styles.bar}
      onSubmit={submit}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        event.stopPropagation();
        done();
      }}
    >
      <input
        className="grow"
        aria-label={label}
        placeholder={action === "ask" ? "What do you want to know?" : "What should change?"}
        autoFocus
        value={words}
        onChange={(event) => setWords(event.target.value)}
      />
      <button type="button" onClick={done}>
        Cancel
      </button>
      <button className="main" disabled={!words.trim()}>
        {action === "ask" ? "Ask" : "Change"}
      </button>
    </form>
  );
}
