/** The arrangement of panels: the main one, one beside it, and one below both. */

import { app, type AppState, type Panel, patchApp } from "./app";
import { storeSidebar } from "./sidebar";

export type Layout = Pick<AppState, "panel" | "beside" | "below" | "wide">;

export const NO_PANELS: Layout = { panel: null, beside: null, below: null, wide: false };

/** The panels that are shown, the main one first; each once. */
export function shownPanels({ panel, beside, below }: Layout): Panel[] {
  return [...new Set([panel, beside, below])].filter((one) => one !== null);
}

/** The arrangement with one more panel: files go beside the canvas, the terminal goes below, others replace the main one. */
export function placePanel(old: Layout, id: Panel): Layout {
  if (shownPanels(old).includes(id)) return old;
  if (id === "terminal") return { ...old, below: id };
  if (id === "files" && old.panel === "canvas") return { ...old, beside: id };
  if (id === "canvas" && old.panel === "files") return { ...old, panel: id, beside: "files" };
  return { ...old, panel: id, beside: id === "canvas" ? old.beside : null };
}

export function removePanel(old: Layout, id: Panel): Layout {
  const leave = (one: Panel | null) => (one === id ? null : one);
  const rest = { ...old, panel: leave(old.panel), beside: leave(old.beside), below: leave(old.below) };
  if (rest.panel) return rest;
  return rest.beside || rest.below ? { ...rest, panel: rest.beside, beside: null } : NO_PANELS;
}

/** The arrangement with the main panel and the one below in each other's place. */
export function swapPanels(old: Layout): Layout {
  return old.below
    ? { ...old, panel: old.below, below: old.panel }
    : { ...old, panel: old.beside, beside: null, below: old.panel };
}

const ROOMY = "(min-width: 821px)"; // as in the style sheets

/** True where there is room for one panel at a time. */
export const isNarrow = (): boolean => !(globalThis.matchMedia?.(ROOMY).matches ?? true);

export function watchNarrow(listener: () => void): () => void {
  const query = globalThis.matchMedia?.(ROOMY);
  query?.addEventListener("change", listener);
  return () => query?.removeEventListener("change", listener);
}

export const showPanel = (id: Panel): void =>
  patchApp(isNarrow() ? { ...NO_PANELS, panel: id } : placePanel(app.get(), id));

export const closePanel = (id: Panel): void => patchApp(removePanel(app.get(), id));

export const togglePanel = (id: Panel): void => (shownPanels(app.get()).includes(id) ? closePanel : showPanel)(id);

/** Close the panel that has the focus, else the last one in the arrangement. */
export function closeOnePanel(): void {
  const shown = shownPanels(app.get());
  const focused = document.activeElement?.closest<HTMLElement>("[data-shows]")?.dataset["shows"];
  const id = shown.find((one) => one === focused) ?? shown.at(-1);
  if (id) closePanel(id);
}

/** Show or hide the list of threads: a drawer where the page is narrow. */
export function toggleSidebar(): void {
  const { sidebar, drawer } = app.get();
  if (isNarrow()) return patchApp({ drawer: !drawer });
  storeSidebar(!sidebar);
  patchApp({ sidebar: !sidebar });
}
