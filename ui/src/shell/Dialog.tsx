import { useEffect, useRef } from "react";

/** A dialog of the browser's own: it keeps the focus inside, Escape closes it, and the focus goes back to where it was.
 * What has `data-first` has the focus at first, else the first button: that must not be one that destroys something. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: React.ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    dialog.current?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      if (before instanceof HTMLElement && document.activeElement === document.body) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-label={title} onClose={close} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      {children}
    </dialog>
  );
}
