import { describe, expect, it } from "vitest";

import { terminalPieces } from "./terminalText";

const shown = (text: string) =>
  terminalPieces(text)
    .map((piece) => piece.text)
    .join("");

describe("output of a command", () => {
  it("has colours", () =>
    expect(terminalPieces("\u001b[31mred\u001b[0m plain \u001b[1;92mok\u001b[0m")).toEqual([
      { text: "red", classes: "ansi-red", colour: "" },
      { text: " plain ", classes: "", colour: "" },
      { text: "ok", classes: "ansi-bright-green ansi-bold", colour: "" },
    ]));
  it("has exact colours", () => expect(terminalPieces("\u001b[38;2;1;2;3mx\u001b[0m")[0]!.colour).toBe("rgb(1, 2, 3)"));
  it("shows a line as it was written last", () => expect(shown("10 %\r50 %\r100 %\r\ndone\n")).toBe("100 %\ndone\n"));
  it("keeps the end of a longer line", () => expect(shown("abcdef\rxy")).toBe("xycdef"));
  it("leaves out what moves the cursor", () =>
    expect(shown("\u001b[2K\u001b[1Ga\u001b]0;title\u0007b\u001b[?25l")).toBe("ab"));
  it("leaves plain text alone", () => expect(shown("<b>x</b>\n")).toBe("<b>x</b>\n"));
});
