/** Output of a command as a terminal would show it: colours, and lines that were written over. */

import Anser from "anser";

export interface Piece {
  text: string;
  classes: string;
  colour: string; // exact colours of the foreground, where the 16 names do not suffice
}

/* eslint-disable no-control-regex -- escape sequences begin with a control character */
const LINKS = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g; // titles and links
const MOVES = /\u001b(?:\[[\d;?]*[A-Za-ln-z@]|[()][A-Z\d]|[=>78cDEHM])/g; // all but colours
/* eslint-enable no-control-regex */

export function terminalPieces(text: string): Piece[] {
  const lines = overwriteLines(text.replace(LINKS, "").replace(MOVES, ""));
  if (!lines.includes("\u001b[")) return [{ text: lines, classes: "", colour: "" }];
  return Anser.ansiToJson(lines, { use_classes: true, remove_empty: true }).map(toPiece);
}

/** After a carriage return a line is written again from its start. */
function overwriteLines(text: string): string {
  if (!text.includes("\r")) return text;
  return text.replace(/\r+\n/g, "\n").split("\n").map(lastWritten).join("\n");
}

const lastWritten = (line: string): string =>
  line.split("\r").reduce((before, now) => (now ? now + keepRest(before, now) : before), "");

/** The end of a longer line stays; a line with colours has an unknown length and is removed. */
function keepRest(before: string, now: string): string {
  return before.includes("\u001b") || now.includes("\u001b") ? "" : before.slice(now.length);
}

function toPiece(part: Anser.AnserJsonEntry): Piece {
  const exact = /palette|truecolor/.test(part.fg ?? "") ? part.fg_truecolor : "";
  const named = [
    exact ? "" : part.fg,
    part.bg && !/palette|truecolor/.test(part.bg) ? `${part.bg}-bg` : "",
    ...(part.decorations ?? []).map((one) => `ansi-${one}`),
  ];
  return { text: part.content, classes: named.filter(Boolean).join(" "), colour: exact ? `rgb(${exact})` : "" };
}
