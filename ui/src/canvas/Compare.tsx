/** A diff: an older version of a text against the current one. */

import { unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView, lineNumbers } from "@codemirror/view";
import { useEffect, useRef, useState } from "react";

import { loadLanguage } from "./languages";
import { look } from "./look";
import { type Tab, updateTab } from "./tabs";
import { versionsOf } from "./versions";
import styles from "./canvas.module.css";

export default function Compare({ tab }: { tab: Tab }) {
  const versions = versionsOf(tab);
  const [wanted, setWanted] = useState(0);
  const chosen = versions[Math.min(wanted, versions.length - 1)];
  if (!chosen)
    return (
      <p className="empty">
        No changes. <button onClick={() => updateTab(tab.id, { view: "code" })}>Back to code</button>
      </p>
    );
  return (
    <div className={styles.compare}>
      <label>
        Compare with{" "}
        <select value={versions.indexOf(chosen)} onChange={(event) => setWanted(Number(event.target.value))}>
          {versions.map((one, at) => (
            <option key={at} value={at}>
              {one.name}
            </option>
          ))}
        </select>
      </label>
      <Difference name={tab.name} old={chosen.text} now={tab.text} />
    </div>
  );
}

export function Difference({ name, old, now }: { name: string; old: string; now: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let [gone, view]: [boolean, EditorView | null] = [false, null];
    void loadLanguage(name)
      .catch(() => [])
      .then((spoken) => {
        if (gone) return;
        const merge = unifiedMergeView({
          original: old,
          mergeControls: false,
          collapseUnchanged: { margin: 3, minSize: 6 },
        });
        const extensions = [
          lineNumbers(),
          EditorState.readOnly.of(true),
          EditorView.editable.of(false),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": `Changes in ${name}`, tabindex: "0" }),
          merge,
          spoken,
          look,
        ];
        view = new EditorView({ doc: now, extensions, parent: place.current! });
      });
    return () => {
      gone = true;
      view?.destroy();
    };
  }, [name, old, now]);
  return <div className={styles.editor} ref={place} />;
}
