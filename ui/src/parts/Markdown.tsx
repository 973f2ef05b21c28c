/** Markdown that is safe to show: no HTML, no external pictures, no scripts. */

import { memo, Suspense, useState } from "react";
import draw, { type Components } from "react-markdown";
import rehypeSanitize, { defaultSchema } from "rehype-sanitize";
import remarkGfm from "remark-gfm";

import { openRelativeLink } from "../canvas/links";
import { joinClasses } from "./classes";
import { createSplitter, isEntangled, readFence, readLongTable } from "./blocks";
import { CodeBlock, CodeFrame } from "./CodeBlock";
import { lazyPart } from "./lazyPart";
import { LongTable } from "./LongTable";
import { hasMath } from "./math";
import { cacheRecent } from "./recent";
import { TableFrame } from "./TableFrame";
import styles from "./markdown.module.css";

const Rich = lazyPart(() => import("./MarkdownRich"));

const COLOURED = 50_000; // letters of code: more of it is shown without colours
const COLOURED_OPEN = 3_000; // while it is written, and so coloured again and again

/** Maths and code in colours load when a text has any of it. */
const isRich = (text: string): boolean => text.includes("```") || text.includes("~~~") || hasMath(text);

export const SCHEMA = {
  ...defaultSchema,
  attributes: {
    ...defaultSchema.attributes,
    code: [["className", /^language-[\w+#.-]+$/, "math-inline", "math-display"] as [string, ...(string | RegExp)[]]],
  },
  protocols: { ...defaultSchema.protocols, src: ["data", "blob"] },
};

/** HTML in a text is shown as text: it has no effect, and stays visible. */
export const PLAIN = {
  handlers: { html: (_: unknown, node: { value: string }) => ({ type: "text" as const, value: node.value }) },
};

const COMPONENTS: Components = {
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
  pre: ({ node, children }) => <CodeBlock node={node}>{children}</CodeBlock>,
  table: ({ children }) => <TableFrame>{children}</TableFrame>,
};

/** Elements of a long table, with their roles: it is not laid out as a table. */
const CELLS: Components = {
  ...COMPONENTS,
  table: ({ children }) => children,
  tr: ({ children }) => <tr role="row">{children}</tr>,
  th: ({ children, style }) => (
    <th role="columnheader" style={style}>
      {children}
    </th>
  ),
  td: ({ children, style }) => (
    <td role="cell" style={style}>
      {children}
    </td>
  ),
};

/** A part of a text, or of a table; the elements around the parts of a table are created once. */
export type Part = "text" | "head" | "rows";
export const PARTS: Record<Part, Components> = {
  text: COMPONENTS,
  head: { ...CELLS, thead: ({ children }) => <thead role="rowgroup">{children}</thead>, tbody: () => null },
  rows: { ...CELLS, thead: () => null, tbody: ({ children }) => children },
};

type Draw = (text: string, components: Components) => React.ReactElement;

/** Parsing Markdown dominates the cost of scrolling: cache recent results. Parts that still grow are parsed each time. */
export function createRenderer(draw: Draw): (text: string, part: Part, grows: boolean) => React.ReactElement {
  const [text, head, rows] = (["text", "head", "rows"] as const).map((part) =>
    cacheRecent((some) => draw(some, PARTS[part]), 2_000),
  );
  const cached = { text: text!, head: head!, rows: rows! };
  return (some, part, grows) => (grows ? draw(some, PARTS[part]) : cached[part](some));
}

const renderPlain = createRenderer((text, components) =>
  draw({
    children: text,
    remarkRehypeOptions: PLAIN,
    remarkPlugins: [remarkGfm],
    rehypePlugins: [[rehypeSanitize, SCHEMA]],
    components,
  }),
);

const CHUNK = 12; // parts: enough for a screen

/**
 * A text as a whole; `grows` while it is written, and then only its last part is parsed again. The others are not drawn again
 * where they are out of sight, since the cost of a frame grows with all that is drawn.
 */
export const Markdown = memo(function Markdown({ text, grows = false }: { text: string; grows?: boolean }) {
  const [split] = useState(createSplitter);
  const parts = !grows && isEntangled(text) ? [text] : split(text);
  const blocks = parts.map((part, at) => <Block key={at} text={part} grows={grows && at === parts.length - 1} />);
  const chunks = Array.from({ length: Math.ceil(blocks.length / CHUNK) }, (_, at) =>
    blocks.slice(at * CHUNK, (at + 1) * CHUNK),
  );
  return (
    <div className={styles.markdown} data-markdown="">
      {chunks.map((some, at) => (
        <div key={at} className={joinClasses(styles.chunk, grows && at < chunks.length - 1 && styles.settled)}>
          {some}
        </div>
      ))}
    </div>
  );
});

const Block = memo(function Block({ text, grows }: { text: string; grows: boolean }) {
  const fence = text.length > COLOURED_OPEN ? readFence(text) : null;
  if (fence && (text.length > COLOURED || !fence.closed))
    return <CodeFrame word={fence.word} text={fence.text} grows={grows} />;
  const table = readLongTable(text);
  if (!table) return <Drawn text={text} part="text" grows={grows} />;
  return <LongTable table={table} grows={grows} draw={drawPart} />;
});

const drawPart = (text: string, part: Part, grows: boolean) => <Drawn text={text} part={part} grows={grows} />;

const Drawn = memo(function Drawn({ text, part, grows }: { text: string; part: Part; grows: boolean }) {
  if (!isRich(text)) return renderPlain(text, part, grows);
  return (
    <Suspense fallback={renderPlain(text, part, grows)}>
      <Rich text={text} part={part} grows={grows} />
    </Suspense>
  );
});
