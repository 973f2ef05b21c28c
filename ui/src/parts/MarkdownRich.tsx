/** Markdown with maths and code in colours; loaded when it is needed. */

import "katex/dist/katex.min.css";
import "./highlight.css";

import draw from "react-markdown";
import rehypeHighlight from "rehype-highlight";
import rehypeKatex from "rehype-katex";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import remarkMath from "remark-math";

import { COMPONENTS, KEPT, PLAIN, SCHEMA } from "./Markdown";
import { normalizeMath } from "./math";
import { cacheRecent } from "./recent";

/** User text is sanitized first; highlighting and maths are added afterwards. */
const rich = cacheRecent(
  (text) =>
    draw({
      children: normalizeMath(text),
      remarkRehypeOptions: PLAIN,
      remarkPlugins: [remarkGfm, remarkMath],
      rehypePlugins: [
        [rehypeSanitize, SCHEMA],
        [rehypeKatex, { trust: false, maxExpand: 200, strict: "ignore" }],
        [rehypeHighlight, { detect: false }],
      ],
      components: COMPONENTS,
    }),
  KEPT,
);

export default function MarkdownRich({ text }: { text: string }) {
  return rich(text);
}
