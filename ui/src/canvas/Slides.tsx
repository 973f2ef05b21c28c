/** A deck: the current slide, thumbnails, notes and exports. */

import { type KeyboardEvent, useMemo, useState } from "react";

import * as api from "../api";
import { app, tryRequest } from "../state/app";
import { type Deck, type Layout, LAYOUTS, readDeck, type Theme, THEMES } from "./deck";
import { layoutComment, withLayout, withTheme } from "./deckChange";
import { download } from "./download";
import { Present } from "./Present";
import { SlideView } from "./SlideView";
import { changeText, redo, type Tab, undo } from "./tabs";
import styles from "./slides.module.css";
import canvasStyles from "./canvas.module.css";

export default function Slides({ tab }: { tab: Tab }) {
  const deck = useMemo(() => readDeck(tab.text), [tab.text]);
  const [wanted, setWanted] = useState(0);
  const [presenting, setPresenting] = useState(false);
  const at = Math.min(wanted, deck.slides.length - 1);
  const slide = deck.slides[at];
  if (!slide)
    return (
      <p className="empty">This deck has no slides. Switch to Code and write Markdown, with --- between slides.</p>
    );
  const press = (event: KeyboardEvent) => {
    const next = slideForKey(event, at, deck.slides.length);
    const steps = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if (next === null && !steps) return;
    event.preventDefault();
    if (steps) (event.shiftKey ? redo : undo)(tab.id);
    else setWanted(next!);
  };
  return (
    <div className={styles.deck}>
      <Tools tab={tab} deck={deck} at={at} present={() => setPresenting(true)} />
      <div
        className={styles.stage}
        tabIndex={0}
        role="group"
        aria-roledescription="slide"
        aria-label={`Slide ${at + 1} of ${deck.slides.length}: ${slide.heading}`}
        onKeyDown={press}
      >
        <SlideView slide={slide} theme={deck.theme} file={tab.file} />
      </div>
      <div className={styles.deckSteps}>
        <button onClick={() => setWanted(at - 1)} disabled={at === 0} aria-label="Previous slide">
          ‹
        </button>
        <small aria-live="polite">
          {at + 1} / {deck.slides.length}
        </small>
        <button onClick={() => setWanted(at + 1)} disabled={at === deck.slides.length - 1} aria-label="Next slide">
          ›
        </button>
      </div>
      {slide.notes && (
        <p className={styles.slideNotes}>
          <b>Notes</b> {slide.notes}
        </p>
      )}
      <ol className={styles.film} aria-label="All slides">
        {deck.slides.map((one, place) => (
          <li key={place}>
            <span inert>
              <SlideView slide={one} theme={deck.theme} file={tab.file} />
            </span>
            <button
              aria-current={place === at ? "true" : undefined}
              aria-label={`Slide ${place + 1}: ${one.heading || "untitled"}`}
              onClick={() => setWanted(place)}
            />
          </li>
        ))}
      </ol>
      {presenting && (
        <Present
          deck={deck}
          file={tab.file}
          from={at}
          done={(last) => {
            setPresenting(false);
            setWanted(last);
          }}
        />
      )}
    </div>
  );
}

function Tools({ tab, deck, at, present }: { tab: Tab; deck: Deck; at: number; present: () => void }) {
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    const bytes = await tryRequest(() =>
      api.slides.export(tab.file?.agent ?? app.get().agent, { path: tab.file?.path ?? "", content: tab.text }),
    );
    setBusy(false);
    if (bytes) download(bytes, `${tab.name.replace(/\.\w+$/, "")}.pptx`);
  };
  return (
    <div className={canvasStyles.viewTools}>
      <label>
        Theme{" "}
        <select
          value={deck.theme}
          onChange={(event) => changeText(tab.id, withTheme(tab.text, event.target.value as Theme))}
        >
          {THEMES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label>
        Layout{" "}
        <select
          value={layoutComment(tab.text, at)}
          onChange={(event) => changeText(tab.id, withLayout(tab.text, at, event.target.value as Layout | ""))}
        >
          <option value="">automatic</option>
          {LAYOUTS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <span className="grow" />
      <button onClick={present}>Present</button>
      <button onClick={() => void save()} disabled={busy}>
        {busy ? "Exporting…" : "PowerPoint"}
      </button>
    </div>
  );
}

/** The slide for a key; null for other keys. */
export function slideForKey(event: Pick<KeyboardEvent, "key">, at: number, count: number): number | null {
  const places: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowDown: at + 1,
    PageDown: at + 1,
    " ": at + 1,
    Enter: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at - 1,
    PageUp: at - 1,
    Home: 0,
    End: count - 1,
  };
  const place = places[event.key];
  return place === undefined ? null : Math.max(0, Math.min(count - 1, place));
}
