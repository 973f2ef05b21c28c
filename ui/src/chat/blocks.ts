/** Split a streamed text into its settled and its open part. */

/** The last empty line outside of fenced code: text before it does not change any more. */
export function splitSettled(text: string): [string, string] {
  let [fence, cut, at] = ["", 0, 0];
  for (const line of text.split("\n")) {
    const mark = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (mark && !fence) fence = mark;
    else if (mark && fence && mark.startsWith(fence)) fence = "";
    at += line.length + 1;
    if (!line.trim() && !fence) cut = at;
  }
  cut = Math.min(cut, text.length);
  return [text.slice(0, cut), text.slice(cut)];
}
