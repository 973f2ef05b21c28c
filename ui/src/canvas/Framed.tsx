/** HTML or SVG as it looks, in a frame that has no origin, runs no script and reaches nothing. */

import { useMemo } from "react";

import { framed } from "./framed";

export default function Framed({ text, name, svg }: { text: string; name: string; svg: boolean }) {
  const page = useMemo(() => framed(text, svg), [text, svg]);
  return (
    <div className="framed">
      {/<script\b/i.test(text) && <p className="hint">Scripts do not run in the preview. Download the file to run it.</p>}
      <iframe sandbox="" srcDoc={page} title={`Preview of ${name}`} referrerPolicy="no-referrer" />
    </div>
  );
}
