/** The card of a question. Its keys answer it: y allows, n denies, e edits. */

import { type ReactNode, useEffect, useRef } from "react";
import { flushSync } from "react-dom";

import { app, patchApp, setDraft } from "../state/app";
import styles from "./chat.module.css";

const READ_MS = 700; // a key that was meant for something else must not answer a question that has just appeared
const ALONE_MS = 350; // a letter with another key after it is the beginning of a sentence, not an answer

export function QuestionCard({ children }: { children: ReactNode }) {
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => answerByKey(card.current!.closest<HTMLElement>("[role=alertdialog], li") ?? card.current!), []);
  return (
    <div ref={card} className={styles.ask}>
      {children}
    </div>
  );
}

/** Press the button of a letter, unless another key follows: then the user writes a message. */
function answerByKey(box: HTMLElement): () => void {
  const shown = Date.now();
  let typed = ""; // a letter that may be the first of a sentence
  let timer: ReturnType<typeof setTimeout> | undefined;
  const clear = () => {
    clearTimeout(timer);
    typed = "";
  };
  const press = (event: KeyboardEvent) => {
    if (event.repeat || isTyping(event.target)) return;
    const isText = event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (typed) {
      const letters = typed + (isText ? event.key : "");
      clear();
      if (!isText && event.key !== "Enter") return;
      event.preventDefault(); // not the press of a focused button, nor the shortcut of a command
      return continueInComposer(letters);
    }
    if (!isText || event.key === " ") return;
    const button = box.querySelector<HTMLButtonElement>(`button[data-key="${event.key.toLowerCase()}"]`);
    if (button) event.preventDefault(); // it is not the shortcut of a command
    const read = Date.now() - shown >= READ_MS;
    typed = event.key;
    timer = setTimeout(() => {
      clear();
      if (read && button?.isConnected && !button.disabled) button.click();
    }, ALONE_MS);
  };
  box.addEventListener("keydown", press);
  box.addEventListener("focusout", clear);
  return () => {
    clear();
    box.removeEventListener("keydown", press);
    box.removeEventListener("focusout", clear);
  };
}

/** Add letters to the draft of the open thread, and write on there. */
function continueInComposer(letters: string): void {
  const { thread, drafts } = app.get();
  flushSync(() => patchApp({ wide: false })); // a hidden composer cannot take the focus
  setDraft(thread, (drafts[thread] ?? "") + letters);
  document.getElementById("message")?.focus();
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** The attributes of a button with a key. */
export const answerKey = (key: string) => ({ "data-key": key, "aria-keyshortcuts": key });

/** A key in a button. */
export function KeyHint({ of }: { of: string }) {
  return (
    <kbd className={styles.keyHint} aria-hidden="true">
      {of}
    </kbd>
  );
}
