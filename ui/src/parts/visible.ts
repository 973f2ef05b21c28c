/** Text that a person decides about: controls, marks of direction and blanks of other kinds are named. */

const HIDDEN =
  // eslint-disable-next-line no-misleading-character-class -- each code point is meant alone
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f]|(?! )\p{Zs}/gu;

/** Line breaks and tabs stay as they are: a `pre` shows them. */
export function showControls(text: string): string {
  return text.replace(HIDDEN, (char) =>
    char === "\n" || char === "\t" ? char : `<U+${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}>`,
  );
}
