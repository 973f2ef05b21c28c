/** An SVG image in a frame without origin, scripts and network. */

import { useMemo } from "react";

import { buildFramePage } from "./framed";
import styles from "./canvas.module.css";

export default function Framed({ text, name }: { text: string; name: string }) {
  const page = useMemo(() => buildFramePage(text, true), [text]);
  return (
    <div className={styles.framed}>
      {/<script\b/i.test(text) && <p className={styles.hint}>Scripts in an image do not run.</p>}
      <iframe sandbox="" srcDoc={page} title={`Preview of ${name}`} referrerPolicy="no-referrer" />
    </div>
  );
}
