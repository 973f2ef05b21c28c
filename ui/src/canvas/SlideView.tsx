/** One slide, as large as there is room. */

import { memo } from "react";

import { Markdown } from "../parts/Markdown";
import { Chart } from "./Chart";
import type { Block, Slide, Theme } from "./deck";
import { Named } from "./Picture";
import type { Place } from "./tabs";
import styles from "./slides.module.css";

interface Props {
  slide: Slide;
  theme: Theme;
  file: Place | null; // the document, for relative images
}

export const SlideView = memo(function SlideView({ slide, theme, file }: Props) {
  return (
    <div className={styles.slideBox}>
      <section className={styles.slide} data-slide-theme={theme} data-layout={slide.layout}>
        {slide.heading && (
          <h2>
            <Plain text={slide.heading} />
          </h2>
        )}
        <Body blocks={slide.layout === "plain" ? visualBlocks(slide.blocks) : slide.blocks} file={file} />
      </section>
    </div>
  );
});

/** Text on the left, visuals on the right. */
function visualBlocks(blocks: Block[]): Block[] {
  const isSeen = (block: Block) => block.kind === "chart" || block.kind === "picture";
  const [seen, words] = [blocks.filter(isSeen), blocks.filter((block) => block.kind === "text")];
  return seen.length && words.length && seen.length + words.length === blocks.length
    ? [{ kind: "columns", columns: [words, seen] }]
    : blocks;
}

function Body({ blocks, file }: { blocks: Block[]; file: Place | null }) {
  return (
    <div className={styles.slideBody}>
      {blocks.map((block, at) => (
        <Piece key={at} block={block} file={file} />
      ))}
    </div>
  );
}

function Piece({ block, file }: { block: Block; file: Place | null }) {
  switch (block.kind) {
    case "chart":
      return <Chart data={block.chart} quiet />;
    case "picture":
      return <Named file={file} name={block.path} words={block.words} />;
    case "columns":
      return (
        <div className={styles.columns}>
          {block.columns.map((column, at) => (
            <div key={at}>
              {column.map((one, place) => (
                <Piece key={place} block={one} file={file} />
              ))}
            </div>
          ))}
        </div>
      );
    default:
      return <Markdown text={block.text} />;
  }
}

/** A heading without the signs of its emphasis. */
const Plain = ({ text }: { text: string }) =>
  text.replace(
    /\*\*([^*]+)\*\*|\*([^*]+)\*|`([^`]+)`/g,
    (_, bold?: string, slanted?: string, code?: string) => bold ?? slanted ?? code ?? "",
  );
