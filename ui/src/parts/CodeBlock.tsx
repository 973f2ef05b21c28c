/** Code in a text, with its language and its actions; diagrams are drawn. */

import { memo, Suspense, useContext, useState } from "react";

import { fenceName } from "../canvas/fences";
import { Icon, type IconName } from "../shell/Icon";
import { copyText } from "../state/talk";
import { joinClasses } from "./classes";
import { lazyPart } from "./lazyPart";
import { ReadOnly } from "./readOnly";
import styles from "./code.module.css";

const Diagram = lazyPart(() => import("./Diagram"));

/** A node of the parsed text, as far as it matters here. */
interface Node {
  type: string;
  value?: string;
  properties?: Record<string, unknown>;
  children?: Node[];
}

const nodeText = (node: Node): string => node.value ?? (node.children ?? []).map(nodeText).join("");

/** A `pre` of Markdown: its text and its language are those of the parsed code. */
export function CodeBlock({ node, children }: { node: unknown; children?: React.ReactNode }) {
  const code = (node as Node | undefined)?.children?.[0];
  if (code?.type !== "element") return <pre>{children}</pre>;
  const names = Array.isArray(code.properties?.["className"]) ? code.properties["className"].map(String) : [];
  const word = names.find((name) => name.startsWith("language-"))?.slice("language-".length) ?? "";
  const text = nodeText(code).replace(/\n$/, "");
  const frame = (
    <CodeFrame word={word} text={text}>
      {children}
    </CodeFrame>
  );
  if (word.toLowerCase() !== "mermaid") return frame;
  return (
    <Suspense fallback={frame}>
      <Diagram source={text}>{frame}</Diagram>
    </Suspense>
  );
}

interface Props {
  word: string; // the language, as the text names it
  text: string;
  children?: React.ReactNode; // the text in colours
  grows?: boolean;
}

export function CodeFrame({ word, text, children, grows = false }: Props) {
  const [wraps, setWraps] = useState(false);
  const readOnly = useContext(ReadOnly);
  const name = fenceName(word);
  const open = () => void import("../canvas/open").then(({ openText }) => openText("", `${text}\n`, word));
  const save = () =>
    void import("../canvas/download").then(({ download }) =>
      download(new Blob([`${text}\n`], { type: "text/plain" }), name),
    );
  return (
    <figure className={styles.code} data-code={word} aria-label={`Code${word && `: ${word}`}`}>
      <div className={styles.bar} data-bar="">
        <span>{word || "text"}</span>
        <Tool icon="wrap" name="Wrap lines" pressed={wraps} act={() => setWraps(!wraps)} />
        {!grows && (
          <>
            {!readOnly && <Tool icon="canvas" name="Open on the canvas" act={open} />}
            <Tool icon="down" name="Download" act={save} />
          </>
        )}
        <Tool icon="copy" name="Copy code" act={() => void copyText(text)} />
      </div>
      <pre className={joinClasses(wraps && styles.wraps)} tabIndex={0} aria-label="Code">
        {children ?? <PlainCode text={text} />}
      </pre>
    </figure>
  );
}

export function Tool({
  icon,
  name,
  act,
  pressed,
}: {
  icon: IconName;
  name: string;
  act: () => void;
  pressed?: boolean;
}) {
  return (
    <button className="plain" aria-label={name} title={name} aria-pressed={pressed} onClick={act}>
      <Icon name={icon} />
    </button>
  );
}

const LINES = 100;

/** Code without colours, in boxes of some lines: the layout of the complete ones does not change. */
function PlainCode({ text }: { text: string }) {
  const lines = text.split("\n");
  const chunks = Array.from({ length: Math.ceil(lines.length / LINES) }, (_, at) =>
    lines.slice(at * LINES, (at + 1) * LINES).join("\n"),
  );
  return (
    <code>
      {chunks.map((some, at) => (
        <Lines key={at} text={at < chunks.length - 1 ? `${some}\n` : some} />
      ))}
    </code>
  );
}

const Lines = memo(function Lines({ text }: { text: string }) {
  return <span className={styles.lines}>{text}</span>;
});
