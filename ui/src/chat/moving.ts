/** Going from message to message by keys; the list that is drawn says how. */

let step: ((by: number) => void) | null = null;

export function moves(how: (by: number) => void): () => void {
  step = how;
  return () => {
    if (step === how) step = null;
  };
}

export const move = (by: number): void => step?.(by);
