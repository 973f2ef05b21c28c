/** Earlier versions of a text for comparison. */

import type { Tab } from "./tabs";

export interface Version {
  name: string;
  text: string;
}

/** Versions to compare a tab with, the nearest first. */
export function versionsOf(tab: Tab): Version[] {
  const found: Version[] = [];
  if (tab.theirs !== null) found.push({ name: "current file", text: tab.theirs });
  if (tab.file && tab.text !== tab.saved) found.push({ name: "last saved", text: tab.saved });
  const earlier = tab.versions.map((text, at) => ({
    name: at === tab.versions.length - 1 ? "previous version" : `${tab.versions.length - at} versions ago`,
    text,
  }));
  return [...found, ...earlier.reverse()].filter((one) => one.text !== tab.text);
}
