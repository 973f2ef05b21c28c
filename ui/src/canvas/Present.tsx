/** A deck over the whole screen, one slide at a time. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";

import type { Deck } from "./deck";
import { slideForKey } from "./Slides";
import { SlideView } from "./SlideView";
import type { Place } from "./tabs";
import styles from "./slides.module.css";

export function Present({
  deck,
  file,
  from,
  done,
}: {
  deck: Deck;
  file: Place | null;
  from: number;
  done: (last: number) => void;
}) {
  const [at, setAt] = useState(from);
  const [notes, setNotes] = useState(false);
  const place = useFullScreen(() => done(at));
  const slide = deck.slides[at]!;
  const press = (event: KeyboardEvent) => {
    event.stopPropagation(); // the page's shortcuts wait
    const button = place.current?.querySelector("button");
    if (event.target === button && (event.key === "Enter" || event.key === " ")) return; // the button's own
    const next = slideForKey(event, at, deck.slides.length);
    if (event.key === "Escape") done(at);
    else if (event.key === "Tab")
      (event.target === button ? place.current : button)?.focus(); // nothing else is there
    else if (event.key === "n") setNotes(!notes);
    else if (next !== null) setAt(next);
    else return;
    event.preventDefault();
  };
  return (
    <div
      className={styles.present}
      ref={place}
      role="dialog"
      aria-modal="true"
      aria-label={`Presentation, slide ${at + 1} of ${deck.slides.length}: ${slide.heading}`}
      tabIndex={-1}
      onKeyDown={press}
      onClick={() => setAt(Math.min(at + 1, deck.slides.length - 1))}
    >
      <SlideView slide={slide} theme={deck.theme} file={file} />
      {notes && slide.notes && <aside>{slide.notes}</aside>}
      <footer onClick={(event) => event.stopPropagation()}>
        <span aria-live="polite">
          {at + 1} / {deck.slides.length}
        </span>
        <button className="plain" onClick={() => done(at)}>
          Exit (Esc)
        </button>
      </footer>
    </div>
  );
}

/** The whole screen while this is shown; where that is refused, the whole window. */
function useFullScreen(left: () => void) {
  const place = useRef<HTMLDivElement>(null);
  const end = useRef(left);
  end.current = left;
  useEffect(() => {
    const before = document.activeElement;
    place.current?.focus();
    void place.current?.requestFullscreen?.().catch(() => undefined);
    const look = () => document.fullscreenElement || end.current();
    document.addEventListener("fullscreenchange", look);
    return () => {
      document.removeEventListener("fullscreenchange", look);
      if (document.fullscreenElement) void document.exitFullscreen();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return place;
}
