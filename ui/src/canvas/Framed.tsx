/** HTML or SVG in a frame without origin, scripts and network. */

import { useMemo } from "react";

import { buildFramePage } from "./framed";
import styles from "./canvas.module.css";

export default function Framed({ text, name, svg }: { text: string; name: string; svg: boolean }) {
  const page = useMemo(() => buildFramePage(text, svg), [text, svg]);
  return (
    <div className={styles.framed}>
      {/<script\b/i.test(text) && (
        <p className={styles.hint}>Scripts do not run in the preview. Download the file to run it.</p>
      )}
      <iframe sandbox="" srcDoc={page} title={`Preview of ${name}`} referrerPolicy="no-referrer" />
    </div>
  );
}
