/** Line format of a file: line endings and byte order mark, removed on read and restored on write. */

export interface Spelling {
  mark: boolean; // a byte order mark at its beginning
  returns: boolean; // lines that end with CR and LF
}

export const PLAIN: Spelling = { mark: false, returns: false };

const MARK = "\uFEFF";

/** A text as the canvas has it. Where the ends of lines differ from each other they are left alone. */
export function parseSpelling(raw: string): { text: string; spelling: Spelling } {
  const mark = raw.startsWith(MARK);
  const returns = raw.includes("\r\n") && !/(?<!\r)\n|\r(?!\n)/.test(raw);
  const text = mark ? raw.slice(1) : raw;
  return { text: returns ? text.replaceAll("\r\n", "\n") : text, spelling: { mark, returns } };
}

/** A text as its file has it. */
export function applySpelling(text: string, { mark, returns }: Spelling): string {
  return (mark ? MARK : "") + (returns ? text.replaceAll("\n", "\r\n") : text);
}
