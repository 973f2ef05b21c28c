/** Formulas in Markdown: `$x$` by Pandoc's rule, `$$x$$`, `\(x\)` and `\[x\]`. */

const CODE =
  /(?:^|\n)[ \t>]*(`{3,}|~{3,})[^\n]*(?:\n[\s\S]*?(?:\n[ \t>]*\1[`~]*[ \t]*(?=\n|$)|$)|$)|(?<!`)(`+)(?!`)[\s\S]*?[^`]\2(?!`)/g;

const BLOCK = String.raw`(?<=^|\n)(?<indent>[ \t]*)\\\[(?<block>[\s\S]+?)\\\]`;
const BRACKETS = String.raw`\\\[(?<square>[\s\S]+?)\\\]|\\\((?<round>[\s\S]+?)\\\)`;
/** The opening dollar has a character at its right, the closing one at its left and no digit at its right. */
const DOLLARS = String.raw`\$\$[\s\S]+?\$\$|\$(?![\s$])(?:\\[\s\S]|[^\\$\n]|\n(?!\n))*?(?<![\s\\])\$(?!\d)`;
const FORMULA = `${BLOCK}|${BRACKETS}|(?<dollars>${DOLLARS})`;
const TOKEN = new RegExp(String.raw`\\\\|\\\$|${FORMULA}|\$`, "g");

export function hasMath(text: string): boolean {
  return /[$\\]/.test(text) && new RegExp(String.raw`(?<!\\)(?:${FORMULA})`).test(text.replace(CODE, ""));
}

/** Return the text with all formulas between dollars, and every other dollar escaped; code is left as it is. */
export function normalizeMath(text: string): string {
  let made = "";
  let end = 0;
  for (const code of text.matchAll(CODE)) {
    made += convertFormulas(text.slice(end, code.index)) + code[0];
    end = code.index + code[0].length;
  }
  return made + convertFormulas(text.slice(end));
}

function convertFormulas(text: string): string {
  return text.replace(TOKEN, (token, ...rest) => {
    const { indent = "", block, square, round, dollars } = rest.at(-1) as Record<string, string | undefined>;
    if (block !== undefined)
      return [
        `${indent}$$`,
        ...block
          .trim()
          .split("\n")
          .map((line) => indent + line.trim()),
        `${indent}$$`,
      ].join("\n");
    const inline = square ?? round;
    if (inline !== undefined) return `$${inline.trim().replace(/\s+/g, " ")}$`;
    return dollars === undefined && token === "$" ? "\\$" : token;
  });
}
