/** Marks of a text in the messages that are drawn, without a change of their elements. */

const NAME = "found";
const MOST = 500;

/** Mark a text until the returned function is called, also in messages that are drawn later. */
export function markMatches(text: string): () => void {
  const list = document.querySelector('[role="log"]');
  if (!list || !("highlights" in CSS) || !text.trim()) return () => undefined;
  let frame = 0;
  const mark = () => {
    frame = 0;
    CSS.highlights.set(NAME, new Highlight(...findRanges(list, text)));
  };
  const watch = new MutationObserver(() => (frame ||= requestAnimationFrame(mark)));
  watch.observe(list, { subtree: true, childList: true, characterData: true });
  mark();
  return () => {
    watch.disconnect();
    cancelAnimationFrame(frame);
    CSS.highlights.delete(NAME);
  };
}

/** The places of a text in an element, ignoring case; within one text node each. */
export function findRanges(element: Element, text: string): Range[] {
  const wanted = text.toLowerCase();
  const ranges: Range[] = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < MOST; node = walker.nextNode()) {
    const words = (node.nodeValue ?? "").toLowerCase();
    if (words.length !== node.nodeValue?.length) continue; // another case is longer, so places differ
    for (let at = words.indexOf(wanted); at >= 0 && ranges.length < MOST; at = words.indexOf(wanted, at + 1)) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}
