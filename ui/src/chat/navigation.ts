/** Keyboard navigation between messages; the list registers the handler. */

let step: ((by: number) => void) | null = null;

export function registerMove(how: (by: number) => void): () => void {
  step = how;
  return () => {
    if (step === how) step = null;
  };
}

export const moveFocus = (by: number): void => step?.(by);
