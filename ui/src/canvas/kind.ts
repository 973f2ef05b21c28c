/** The kind of a file by name and content, and its views. */

import { isDeck } from "./deck";
import { readTable } from "./table";

export type Kind =
  | "code"
  | "script"
  | "component"
  | "data"
  | "document"
  | "slides"
  | "html"
  | "svg"
  | "diagram"
  | "image"
  | "pdf"
  | "binary";
export type View = "code" | "grid" | "chart" | "preview" | "slides" | "picture" | "pages" | "none" | "diff";

const VIEWS: Record<Kind, View[]> = {
  code: ["code"],
  script: ["code", "preview"],
  component: ["preview", "code"],
  data: ["grid", "chart", "code"],
  document: ["preview", "code"],
  slides: ["slides", "preview", "code"],
  html: ["preview", "code"],
  svg: ["preview", "code"],
  diagram: ["preview", "code"],
  image: ["picture"],
  pdf: ["pages"],
  binary: ["none"],
};

export const VIEW_NAMES: Record<View, string> = {
  code: "Code", grid: "Grid", chart: "Chart", preview: "Preview", slides: "Slides", picture: "Picture", pages: "Pages", none: "File", diff: "Changes",
}; // prettier-ignore

const PICTURES: Record<string, string> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp", ico: "image/x-icon",
}; // prettier-ignore

export const extensionOf = (name: string): string => /\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";

/** The type of a picture's bytes; nothing if it is no picture. */
export const pictureType = (name: string): string => PICTURES[extensionOf(name)] ?? "";

/** The kind by name alone, before reading. */
export function bytesKind(name: string): "image" | "pdf" | null {
  if (pictureType(name)) return "image";
  return extensionOf(name) === "pdf" ? "pdf" : null;
}

export function kindOf(name: string, text: string): Kind {
  const end = extensionOf(name);
  if (end === "csv" || end === "tsv") return "data";
  if (end === "json") return isGrid(text) ? "data" : "code";
  if (end === "md" || end === "markdown") return isDeck(text) ? "slides" : "document";
  if (end === "html" || end === "htm") return "html";
  if (SCRIPTS.has(end)) return isComponent(end, text) ? "component" : "script";
  if (end === "mmd" || end === "mermaid") return "diagram";
  return end === "svg" ? "svg" : "code";
}

const SCRIPTS = new Set(["js", "mjs", "jsx", "ts", "tsx"]);

/** True for a file that can be shown alone; a part of a project imports other parts. */
const isComponent = (end: string, text: string): boolean =>
  end.endsWith("x") &&
  /\bexport\s+default\b|createRoot/.test(text) &&
  !/\b(?:from|import)\s*\(?\s*["']\.{1,2}\//.test(text);

/** True if the preview of a kind runs scripts. */
export const doesRun = (kind: Kind): boolean => kind === "html" || kind === "script" || kind === "component";

function isGrid(text: string): boolean {
  if (!/^\s*\[\s*\{/.test(text)) return false;
  try {
    return readTable(text, ".json").columns.length > 0;
  } catch {
    return false;
  }
}

export const viewsOf = (kind: Kind): View[] => VIEWS[kind];
