/** The card of a question. Its keys answer it: y allows, n denies, e edits. */

import { type ReactNode, useEffect, useRef } from "react";

import styles from "./chat.module.css";

const READ_MS = 700; // a key that was meant for something else must not answer a question that has just appeared

export function QuestionCard({ children }: { children: ReactNode }) {
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const shown = Date.now();
    const box = card.current!.closest<HTMLElement>("[role=alertdialog], li") ?? card.current!;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || isTyping(event.target)) return;
      if (!/^[a-z]$/i.test(event.key)) return;
      const button = box.querySelector<HTMLButtonElement>(`button[data-key="${event.key.toLowerCase()}"]`);
      if (!button) return;
      event.preventDefault(); // it is not the shortcut of a command
      if (!button.disabled && Date.now() - shown >= READ_MS) button.click();
    };
    box.addEventListener("keydown", press);
    return () => box.removeEventListener("keydown", press);
  }, []);
  return (
    <div ref={card} className={styles.ask}>
      {children}
    </div>
  );
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
