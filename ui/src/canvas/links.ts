/** Links in a text that lead to files of the workspace. */

import type { MouseEvent } from "react";

const ELSEWHERE = /^(?:[a-z][a-z\d+.-]*:|\/\/|#)/i; // another site, or a place in the same text

/** The path of a link without a host; null if it leads elsewhere. */
export function filePath(href: string): string | null {
  if (!href || ELSEWHERE.test(href)) return null;
  const path = href.replace(/[?#].*$/s, "").replace(/^(?:\.?\/)+/, "");
  try {
    return decodeURIComponent(path) || null;
  } catch {
    return path || null; // a percent sign that escapes nothing
  }
}

/** Open a link to a file on the canvas; the browser follows other links. */
export function openRelativeLink(event: MouseEvent<HTMLAnchorElement>): void {
  const path = filePath(event.currentTarget.getAttribute("href") ?? "");
  if (path === null) return;
  event.preventDefault();
  void import("./open").then(({ openFile }) => openFile(path));
}
