/** The page in the frame of a preview. The frame runs no script and its policy loads nothing; requests that a browser
 * sends before checking either (DNS lookups, preconnects for links) are removed from the page. */

const POLICY =
  "default-src 'none'; img-src data: blob:; media-src data: blob:; font-src data:; style-src 'unsafe-inline'";
const HEAD = `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}">`;
const MIDDLE =
  "<style>body{margin:0;display:grid;place-items:center;min-height:100vh}svg{max-width:100%;max-height:100vh}</style>";
const REACHING =
  "link, base, script, template, iframe, frame, frameset, object, embed, portal, fencedframe, [attributeName*='href' i]";
const MOST_ROUNDS = 5; // taking something out may make something else of the rest

export function buildFramePage(text: string, svg: boolean): string {
  let inside = silencePage(svg ? MIDDLE + text.replace(/^\s*<\?xml[^>]*\?>/, "") : text);
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const page = new DOMParser().parseFromString(HEAD + inside, "text/html"); // it is only read: nothing is loaded by that
    if (!removeExternal(page)) return HEAD + inside;
    for (const meta of page.querySelectorAll("meta[charset], meta[http-equiv]")) meta.remove();
    inside = page.documentElement.outerHTML;
  }
  return `${HEAD}<p>This page cannot be shown safely. Switch to Code.`;
}

/** Resources refused in the frame would be reported already while parsing here. */
function silencePage(text: string): string {
  return text
    .replace(/<base(?=[\s/>])[^>]*>/gi, "")
    .replace(/<[a-z][^>]*>/gi, (tag) => tag.replace(/(?<=[\s"'/])on(?=[a-z]+\s*=)/gi, "data-on"));
}

/** Remove external references; return true if there were any. */
function removeExternal(page: Document): boolean {
  const [, ...metas] = page.querySelectorAll("meta[http-equiv]"); // the first one is ours
  const found = [...metas, ...page.querySelectorAll(REACHING)];
  for (const one of found) one.remove();
  const links = [...page.querySelectorAll("*")].flatMap((element) =>
    [...element.attributes].filter(isLink).map((link) => ({ element, link })),
  );
  for (const { element, link } of links) {
    if (link.localName === "href") element.setAttribute("title", link.value);
    element.removeAttributeNode(link);
  }
  return found.length + links.length > 0;
}

/** Return true for an address that leaves the page; links within it do not. */
function isLink({ localName, value, ownerElement }: Attr): boolean {
  if (localName === "ping") return true;
  return localName === "href" && ["a", "area"].includes(ownerElement?.localName ?? "") && !value.startsWith("#");
}
