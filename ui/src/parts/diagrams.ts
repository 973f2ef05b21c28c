/** Diagrams of Mermaid as pictures. Their sources are not trusted: a picture runs nothing, loads nothing and has no links. */

import mermaid from "mermaid";

const MOST_LETTERS = 20_000;
const MOST_PARTS = 400; // nodes, edges, messages or tasks: the layout blocks the page meanwhile
const MOST_EDGES = 300;
const KEPT = 40;

export interface Picture {
  svg: string;
  width: number;
  height: number;
}

export class BadDiagram extends Error {}

const drawn = new Map<string, Promise<Picture>>();
let count = 0;

/** Draw a diagram, or find it among the recent ones; raise `BadDiagram` if it cannot be drawn. */
export function drawDiagram(source: string, dark: boolean): Promise<Picture> {
  const key = `${dark} ${source}`;
  const found = drawn.get(key) ?? draw(source, dark);
  drawn.delete(key);
  drawn.set(key, found);
  if (drawn.size > KEPT) drawn.delete(drawn.keys().next().value!);
  return found;
}

async function draw(source: string, dark: boolean): Promise<Picture> {
  checkSize(source);
  const id = `diagram-${++count}`;
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    theme: dark ? "dark" : "neutral",
    darkMode: dark,
    htmlLabels: false,
    fontFamily: "system-ui, sans-serif",
    maxTextSize: MOST_LETTERS,
    maxEdges: MOST_EDGES,
    secure: [
      "secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "dompurifyConfig", "themeCSS", "themeVariables", "fontFamily", "altFontFamily", "theme", "darkMode",
    ],
  }); // prettier-ignore
  try {
    return toPicture((await mermaid.render(id, disarm(source))).svg);
  } catch (error) {
    throw new BadDiagram(error instanceof Error ? error.message : String(error));
  } finally {
    document.getElementById(`d${id}`)?.remove(); // where it was measured
  }
}

const TAG = /<<[\w -]+>>|<br\s*\/?>|<(?=[a-z!/?])|[&#]+(?:lt|60|x0*3c)\b;?/gi;

const MENU = /^[ \t]*(?:links?|properties|details)[ \t].*$/gim; // of an actor, opened by an inline handler

/** A source without tags and addresses: Mermaid measures labels in the page, as HTML, before it sanitizes them. */
export function disarm(source: string): string {
  const inert = /^\s*sequenceDiagram/m.test(source) ? source.replace(MENU, "") : source;
  return inert
    .replace(TAG, (found) => (/^<./.test(found) ? found : "‹"))
    .replace(/url\s*\(/gi, "url-(")
    .replace(/(@\{[^}]*?["']?)img(?=["']?\s*:)/gi, "$1alt");
}

export function checkSize(source: string): void {
  const parts = source.split(/[\n;&]/).filter((part) => part.trim()).length;
  if (source.length > MOST_LETTERS || parts > MOST_PARTS)
    throw new BadDiagram(
      `It is too large: ${source.length.toLocaleString()} letters in ${parts} parts, of at most ${MOST_LETTERS.toLocaleString()} in ${MOST_PARTS}.`,
    );
}

/** An SVG document without scripts, handlers and links, which counts when it is downloaded and opened elsewhere. */
export function toPicture(markup: string): Picture {
  const svg = new DOMParser().parseFromString(markup, "text/html").querySelector("svg");
  if (!svg) throw new BadDiagram("The diagram is empty.");
  for (const one of svg.querySelectorAll("script, iframe, object, embed, image, use")) one.remove();
  for (const one of [svg, ...svg.querySelectorAll("*")])
    for (const attribute of [...one.attributes])
      if (/^on|href$|^src$|^target$/i.test(attribute.name)) one.removeAttributeNode(attribute);
  const [, , width = 0, height = 0] = (svg.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  svg.setAttribute("width", String(width || 600));
  svg.setAttribute("height", String(height || 400));
  return { svg: new XMLSerializer().serializeToString(svg), width: width || 600, height: height || 400 };
}

export const pictureUrl = (svg: string): string => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
