/** HTML or SVG as it looks, in a frame that has no origin, runs no script and reaches nothing. */

import { useMemo } from "react";

const POLICY = "default-src 'none'; img-src data: blob:; media-src data: blob:; font-src data:; style-src 'unsafe-inline'";

/** The page that stands in the frame. Its policy comes before anything that was written by others. */
export function framed(text: string, svg: boolean): string {
  const head = `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}">`;
  const body = svg ? `<style>body{margin:0;display:grid;place-items:center;min-height:100vh}svg{max-width:100%;max-height:100vh}</style>${text.replace(/^\s*<\?xml[^>]*\?>/, "")}` : text.replace(/^\s*<!doctype[^>]*>/i, "");
  return head + body;
}

export default function Framed({ text, name, svg }: { text: string; name: string; svg: boolean }) {
  const page = useMemo(() => framed(text, svg), [text, svg]);
  return (
    <div className="framed">
      {/<script\b/i.test(text) && <p className="hint">Scripts do not run here. Download the file to see it whole.</p>}
      <iframe sandbox="" srcDoc={page} title={`Preview of ${name}`} referrerPolicy="no-referrer" />
    </div>
  );
}
