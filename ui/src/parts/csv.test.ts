import { expect, it } from "vitest";

import { tableCells, toCsv } from "./csv";

it("quotes what has to be quoted", () => {
  expect(
    toCsv([
      ["a", "b"],
      ['1,5 "x"', "two\nlines"],
    ]),
  ).toBe('a,b\n"1,5 ""x""","two\nlines"\n');
});

it("reads cells as they are shown, and formulas as they are written", () => {
  const table = document.createElement("table");
  table.innerHTML =
    "<thead><tr><th> a </th></tr></thead><tbody><tr><td><b>1</b> of 2</td></tr><tr><td>is <span class=katex><math>x<annotation>x^2</annotation></math><i>x2</i></span></td></tr></tbody>";
  expect(tableCells(table)).toEqual([["a"], ["1 of 2"], ["is x^2"]]);
});
