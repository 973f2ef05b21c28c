/** Questions of the open thread as dialogs. */

import { useEffect, useRef } from "react";

import { useApp } from "../state/app";
import { Ask } from "./Ask";
import styles from "./chat.module.css";

export function Dialogs() {
  const asked = useApp((state) => state.approvals.find((one) => one.thread_id === state.thread));
  const count = useApp((state) => state.approvals.filter((one) => one.thread_id === state.thread).length);
  if (!asked) return null;
  return (
    <QuestionBox key={asked.id}>
      {count > 1 && <p className={styles.hint}>1 of {count} pending questions</p>}
      <Ask asked={asked} title="asked" />
    </QuestionBox>
  );
}

/** Take the focus only if no element has it: a typing user must not approve by accident. */
function QuestionBox({ children }: { children: React.ReactNode }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const idle =
      document.activeElement === document.body ||
      !(document.activeElement as HTMLTextAreaElement | null)?.value?.trim();
    if (idle && !document.querySelector("dialog[open], aside :focus")) box.current?.focus();
  }, []);
  useReturnedFocus(box);
  return (
    <section
      ref={box}
      id="question"
      className={styles.askBox}
      role="alertdialog"
      aria-label="Question from the agent"
      aria-describedby="asked"
      tabIndex={-1}
    >
      {children}
    </section>
  );
}

/** When an answered question goes, the focus that was in it goes to the composer. */
function useReturnedFocus(box: React.RefObject<HTMLElement | null>): void {
  useEffect(() => {
    let within = box.current!.contains(document.activeElement);
    const section = box.current!;
    const enter = () => void (within = true);
    const leave = ({ relatedTarget }: FocusEvent) =>
      void (within = relatedTarget === null || section.contains(relatedTarget as Node)); // null: a button was disabled
    section.addEventListener("focusin", enter);
    section.addEventListener("focusout", leave);
    return () => {
      if (within)
        requestAnimationFrame(
          () => document.activeElement === document.body && document.getElementById("message")?.focus(),
        );
    };
  }, [box]);
}
