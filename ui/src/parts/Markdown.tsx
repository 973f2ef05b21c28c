/** Markdown as it may be shown: no HTML of its own, no pictures from elsewhere, nothing that runs. */

import { lazy, memo, Suspense } from "react";
import draw, { type Components } from "react-markdown";
import rehypeSanitize, { defaultSchema } from "rehype-sanitize";
import remarkGfm from "remark-gfm";

import { openRelativeLink } from "../canvas/links";
import { hasMath } from "./math";
import { cacheRecent } from "./recent";
import styles from "./markdown.module.css";

const Rich = lazy(() => import("./MarkdownRich"));

/** Maths and code in colours load when a text has any of it. */
const isRich = (text: string): boolean => text.includes("```") || hasMath(text);

export const SCHEMA = {
  ...defaultSchema,
  attributes: {
    ...defaultSchema.attributes,
    code: [["className", /^language-[\w+#.-]+$/, "math-inline", "math-display"] as [string, ...(string | RegExp)[]]],
  },
  protocols: { ...defaultSchema.protocols, src: ["data", "blob"] },
};

/** HTML in a text is text: it does nothing, and it does not vanish either. */
export const PLAIN = {
  handlers: { html: (_: unknown, node: { value: string }) => ({ type: "text" as const, value: node.value }) },
};

export const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" onClick={openRelativeLink}>
      {children}
    </a>
  ),
  img: ({ src, alt }) =>
    typeof src === "string" && /^(data|blob):/.test(src) ? (
      <img src={src} alt={alt ?? ""} />
    ) : (
      <i>[image: {alt || "external"}]</i>
    ),
  table: ({ children }) => (
    <div className={styles.table} tabIndex={0} role="group" aria-label="table">
      <table>{children}</table>
    </div>
  ),
};

/** Parsing Markdown dominates the cost of scrolling: cache recent results. */
export const KEPT = 300;
const renderPlain = cacheRecent(
  (text) =>
    draw({
      children: text,
      remarkRehypeOptions: PLAIN,
      remarkPlugins: [remarkGfm],
      rehypePlugins: [[rehypeSanitize, SCHEMA]],
      components: COMPONENTS,
    }),
  KEPT,
);

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return (
    <div className={styles.markdown} data-markdown="">
      {isRich(text) ? (
        <Suspense fallback={renderPlain(text)}>
          <Rich text={text} />
        </Suspense>
      ) : (
        renderPlain(text)
      )}
    </div>
  );
});
