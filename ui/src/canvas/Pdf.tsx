/** A PDF, page by page; hidden pages are not drawn. */

import { getDocument, GlobalWorkerOptions, type PDFDocumentProxy } from "pdfjs-dist";
import worker from "pdfjs-dist/build/pdf.worker.min.mjs?url";
import { useEffect, useRef, useState } from "react";

import { formatPlural } from "../parts/amounts";
import type { Tab } from "./tabs";
import styles from "./canvas.module.css";

GlobalWorkerOptions.workerSrc = worker;

const SCALES = [0.5, 0.75, 1, 1.25, 1.5, 2, 3];

export default function Pdf({ tab }: { tab: Tab }) {
  const { document, problem } = useDocument(tab.bytes);
  const [scale, setScale] = useState(1);
  if (problem)
    return (
      <p className="empty" role="alert">
        {tab.name} cannot be shown: {problem}. Download it to open it elsewhere.
      </p>
    );
  if (!document)
    return (
      <p className="waiting" role="status">
        Opening {tab.name}…
      </p>
    );
  const step = (by: number) => setScale(SCALES[Math.max(0, Math.min(SCALES.length - 1, SCALES.indexOf(scale) + by))]!);
  return (
    <div className={styles.pdf}>
      <div className={styles.viewTools}>
        <button onClick={() => step(-1)} disabled={scale === SCALES[0]} aria-label="Zoom out">
          −
        </button>
        <small aria-live="polite">{Math.round(scale * 100)} %</small>
        <button onClick={() => step(1)} disabled={scale === SCALES.at(-1)} aria-label="Zoom in">
          +
        </button>
        <small>{formatPlural(document.numPages, "page")}</small>
      </div>
      <div className={styles.pdfPages} tabIndex={0} role="group" aria-label={`Pages of ${tab.name}`}>
        {Array.from({ length: document.numPages }, (_, at) => (
          <Page key={at} document={document} number={at + 1} scale={scale} />
        ))}
      </div>
    </div>
  );
}

function useDocument(bytes: Blob | null): { document: PDFDocumentProxy | null; problem: string } {
  const [found, setFound] = useState<{ document: PDFDocumentProxy | null; problem: string }>({
    document: null,
    problem: "",
  });
  useEffect(() => {
    if (!bytes) return;
    let [gone, task]: [boolean, ReturnType<typeof getDocument> | null] = [false, null];
    const open = async () => {
      task = getDocument({ data: await bytes.arrayBuffer(), enableXfa: false, useSystemFonts: true });
      return task.promise;
    };
    open().then(
      (document) => gone || setFound({ document, problem: "" }),
      (error: unknown) =>
        gone ||
        setFound({
          document: null,
          problem: error instanceof Error ? error.message.replace(/\.$/, "") : "it is not a PDF",
        }),
    );
    return () => {
      gone = true;
      void task?.destroy();
    };
  }, [bytes]);
  return found;
}

function Page({ document, number, scale }: { document: PDFDocumentProxy; number: number; scale: number }) {
  const place = useRef<HTMLDivElement>(null);
  const paper = useRef<HTMLCanvasElement>(null);
  const [near, setNear] = useState(false);
  const [text, setText] = useState("");
  useEffect(() => {
    const watch = new IntersectionObserver((seen) => setNear(seen.some((one) => one.isIntersecting)), {
      rootMargin: "600px",
    });
    watch.observe(place.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!near) return;
    let [gone, stop]: [boolean, () => void] = [false, () => undefined];
    void document.getPage(number).then(async (page) => {
      const sharp = page.getViewport({ scale: scale * 1.3 * devicePixelRatio });
      if (gone || !paper.current) return;
      Object.assign(paper.current, { width: sharp.width, height: sharp.height });
      paper.current.style.width = `${sharp.width / devicePixelRatio}px`;
      const task = page.render({ canvas: paper.current, viewport: sharp });
      stop = () => task.cancel();
      await task.promise.catch(() => undefined); // another size is wanted by now
      const { items } = await page.getTextContent();
      if (!gone) setText(items.map((item) => ("str" in item ? item.str : "")).join(" "));
    });
    return () => {
      gone = true;
      stop();
    };
  }, [document, number, scale, near]);
  return (
    <div className={styles.pdfPage} ref={place} data-page={number}>
      <canvas ref={paper} aria-hidden="true" />
      <p className="visually-hidden">
        Page {number}: {text}
      </p>
    </div>
  );
}
