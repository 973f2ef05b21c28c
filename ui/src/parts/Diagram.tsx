/** A diagram in Mermaid: drawn when it is looked at; its source is shown on request, and if it cannot be drawn. */

import { useEffect, useRef, useState } from "react";

import { download } from "../canvas/download";
import { Tool } from "./CodeBlock";
import { useDark } from "./dark";
import { drawDiagram, type Picture, pictureUrl } from "./diagrams";
import styles from "./diagram.module.css";

interface Props {
  source: string;
  children: React.ReactNode; // its source
}

export default function Diagram({ source, children }: Props) {
  const place = useRef<HTMLElement>(null);
  const [shows, setShows] = useState(false);
  const { picture, problem } = usePicture(source, place);
  return (
    <figure className={styles.diagram} ref={place} aria-label="Diagram">
      <div className={styles.bar} data-bar="">
        <span>diagram</span>
        <Tool icon="code" name="Show the source" pressed={shows} act={() => setShows(!shows)} />
        {picture && (
          <Tool
            icon="down"
            name="Download as SVG"
            act={() => download(new Blob([picture.svg], { type: "image/svg+xml" }), "diagram.svg")}
          />
        )}
      </div>
      {problem && (
        <p className={styles.problem} role="alert">
          The diagram cannot be drawn. <span>{problem}</span>
        </p>
      )}
      {!picture && !problem && (
        <p className="waiting" role="status">
          Drawing the diagram…
        </p>
      )}
      {picture && (
        <div className={styles.place} tabIndex={0} role="group" aria-label="Diagram, scrollable">
          <img
            src={pictureUrl(picture.svg)}
            width={Math.ceil(picture.width)}
            height={Math.ceil(picture.height)}
            alt={`Diagram: ${source.slice(0, 300)}`}
          />
        </div>
      )}
      {(shows || problem) && children}
    </figure>
  );
}

interface Outcome {
  picture?: Picture;
  problem?: string;
}

function usePicture(source: string, place: React.RefObject<HTMLElement | null>): Outcome {
  const dark = useDark();
  const [outcome, setOutcome] = useState<Outcome>({});
  useEffect(() => {
    let over = false;
    const draw = () =>
      void drawDiagram(source, dark).then(
        (picture) => over || setOutcome({ picture }),
        (error: Error) => over || setOutcome({ problem: error.message }),
      );
    const watch = new IntersectionObserver(([seen]) => {
      if (!seen?.isIntersecting) return;
      watch.disconnect();
      draw();
    });
    watch.observe(place.current!);
    return () => {
      over = true;
      watch.disconnect();
    };
  }, [source, dark, place]);
  return outcome;
}
