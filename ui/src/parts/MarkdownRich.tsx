/** Markdown with maths and code in colours; loaded when it is needed. */

import "katex/dist/katex.min.css";
import "./highlight.css";

import draw from "react-markdown";
import rehypeHighlight from "rehype-highlight";
import rehypeKatex from "rehype-katex";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import remarkMath from "remark-math";

import { createRenderer, type Part, PLAIN, SCHEMA } from "./Markdown";
import { normalizeMath } from "./math";

/** User text is sanitized first; highlighting and maths are added afterwards. */
const renderRich = createRenderer((text, components) =>
  draw({
    children: normalizeMath(text),
    remarkRehypeOptions: PLAIN,
    remarkPlugins: [remarkGfm, remarkMath],
    rehypePlugins: [
      [rehypeSanitize, SCHEMA],
      [rehypeKatex, { trust: false, maxExpand: 200, strict: "ignore" }],
      [rehypeHighlight, { detect: false }],
    ],
    components,
  }),
);

export default function MarkdownRich({ text, part, grows }: { text: string; part: Part; grows: boolean }) {
  return renderRich(text, part, grows);
}
