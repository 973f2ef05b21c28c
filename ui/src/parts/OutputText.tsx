import { useMemo } from "react";

import { terminalPieces } from "./terminalText";
import "./ansi.css";

/** Output of a command, with its colours. */
export function OutputText({ text }: { text: string }) {
  const pieces = useMemo(() => terminalPieces(text), [text]);
  return (
    <>
      {pieces.map((piece, at) =>
        piece.classes || piece.colour ? (
          <span key={at} className={piece.classes} style={piece.colour ? { color: piece.colour } : undefined}>
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </>
  );
}
