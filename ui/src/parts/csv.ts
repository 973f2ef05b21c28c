/** A table of a text as CSV. */

export const toCsv = (rows: string[][]): string =>
  rows
    .map(
      (row) => `${row.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",")}\n`,
    )
    .join("");

/** The cells of a table in the page; a formula is its source. */
export function tableCells(table: HTMLTableElement): string[][] {
  return [...table.rows].map((row) => [...row.cells].map(cellText));
}

function cellText(cell: Element): string {
  if (!cell.querySelector(".katex")) return cell.textContent.trim();
  const copy = cell.cloneNode(true) as Element;
  for (const formula of copy.querySelectorAll(".katex"))
    formula.replaceWith(formula.querySelector("annotation")?.textContent ?? formula.textContent);
  return copy.textContent.trim();
}
