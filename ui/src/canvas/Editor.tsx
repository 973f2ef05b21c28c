/** A text in an editor. Its steps, its selection and its place stay when another tab is looked at. */

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab, redo, undo } from "@codemirror/commands";
import { bracketMatching, foldGutter, foldKeymap, indentOnInput } from "@codemirror/language";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { useEffect, useRef } from "react";

import { loadLanguage } from "./languages";
import { look } from "./look";
import { setSelected } from "./selection";
import { canvas, changeText, type Tab, tabOf } from "./tabs";
import styles from "./canvas.module.css";

const STATES = new Map<string, EditorState>(); // of the tabs that are not shown
const SPOKEN = new Compartment(); // the language, which loads after the text

canvas.subscribe(() => {
  for (const id of STATES.keys()) if (!canvas.get().tabs.some((tab) => tab.id === id)) STATES.delete(id);
});

export default function Editor({ tab }: { tab: Tab }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const odd = tab.text.includes("\r"); // its lines do not all end alike, and are left so
  useEffect(() => {
    const made = new EditorView({ state: restoreState(tab, odd) ?? createState(tab, odd), parent: place.current! });
    view.current = made;
    let gone = false;
    void loadLanguage(tab.name)
      .then((found) => gone || made.dispatch({ effects: SPOKEN.reconfigure(found) }))
      .catch(() => undefined); // it is text without one, too
    return () => {
      gone = true;
      if (tabOf(tab.id)) STATES.set(tab.id, made.state);
      made.destroy();
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `tab` changes with each key; the effect below writes its text
  }, [tab.id, tab.cut, odd]);
  useEffect(() => {
    const { current } = view;
    if (current && current.state.doc.toString() !== tab.text)
      current.dispatch({ changes: findChange(current.state.doc.toString(), tab.text) });
  }, [tab.text, tab.id, odd]);
  return (
    <div
      className={styles.editor}
      ref={place}
      data-tab={tab.id}
      onKeyDown={(event) => {
        if (event.key === "F6" || event.key === "Escape") handleLeaveKeys(event);
        else if (event.defaultPrevented) event.stopPropagation(); // keys handled by the editor are not for the page
      }}
    />
  );
}

/** Escape lets Tab leave the editor, and F6 leaves it at once; neither closes the panel. */
function handleLeaveKeys(event: React.KeyboardEvent): void {
  event.stopPropagation();
  if (event.key === "F6")
    document.querySelector<HTMLElement>("[role=tablist][aria-label='Open files'] [aria-selected=true]")?.focus();
}

/** Restore the editor state of a tab, if it still fits the text. */
function restoreState(tab: Tab, odd: boolean): EditorState | undefined {
  const state = STATES.get(tab.id);
  return state && state.readOnly === tab.cut && (state.facet(EditorState.lineSeparator) === "\n") === odd
    ? state
    : undefined;
}

function createState(tab: Tab, odd: boolean): EditorState {
  return EditorState.create({
    doc: tab.text,
    extensions: [createExtensions(tab), SPOKEN.of([]), odd ? EditorState.lineSeparator.of("\n") : []],
  });
}

function createExtensions({ id, name, cut }: Tab): Extension {
  return [
    lineNumbers(), foldGutter(), highlightActiveLine(), highlightActiveLineGutter(), drawSelection(), history(), indentOnInput(), bracketMatching(), closeBrackets(), highlightSelectionMatches(),
    EditorView.lineWrapping,
    EditorState.readOnly.of(cut),
    EditorView.contentAttributes.of({ "aria-label": `Text of ${name}`, tabindex: "0" }),
    EditorView.updateListener.of((update) => update.docChanged && changeText(id, update.state.doc.toString(), true)),
    EditorView.updateListener.of((update) => (update.selectionSet || update.docChanged) && noteSelection(id, update.state)),
    keymap.of([indentWithTab, ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap]),
    look,
  ]; // prettier-ignore
}

function noteSelection(tab: string, { doc, selection: { main } }: EditorState): void {
  setSelected(main.empty ? null : { tab, text: doc.sliceString(main.from, main.to), from: main.from });
}

/** The smallest change between two texts, so that the selection stays where it was. */
export function findChange(old: string, now: string): { from: number; to: number; insert: string } {
  let from = 0;
  while (from < old.length && from < now.length && old[from] === now[from]) from++;
  let end = 0;
  while (end < old.length - from && end < now.length - from && old[old.length - 1 - end] === now[now.length - 1 - end])
    end++;
  return { from, to: old.length - end, insert: now.slice(from, now.length - end) };
}

/** The editor of a tab, if it is shown: its steps are finer than the tab's. */
export function stepEditor(id: string, which: "undo" | "redo"): boolean {
  const shown = document.querySelector<HTMLElement>(`[data-tab="${CSS.escape(id)}"] .cm-editor`);
  const view = shown && EditorView.findFromDOM(shown);
  return view ? (which === "undo" ? undo : redo)(view) : false;
}
