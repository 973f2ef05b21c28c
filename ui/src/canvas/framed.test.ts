import { expect, it } from "vitest";

import { buildFramePage } from "./framed";

const POLICY =
  /^<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'/;
const body = (text: string, svg = false) =>
  new DOMParser().parseFromString(buildFramePage(text, svg), "text/html").body.innerHTML;

it("begins with its policy, and says what was written", () => {
  const page = buildFramePage(
    "<!doctype html><title>T</title><style>p{color:red}</style><p class=x>hi <a href='#there'>there</a>",
    false,
  );
  expect(page).toMatch(POLICY);
  for (const part of ["<title>T</title>", "p{color:red}", "hi <a href='#there'>there</a>"])
    expect(page).toContain(part);
});

it("has nothing in it that reaches elsewhere", () => {
  const elsewhere = [
    "<link rel=preconnect href=//x.y>",
    "<base href=//x.y>",
    "<meta http-equiv=refresh content='0;url=//x.y'>",
    "<iframe srcdoc='<link rel=preconnect href=//x.y>'></iframe>",
    "<template shadowrootmode=open><link href=//x.y></template>",
    "<script>fetch('//x.y')</script>",
    "<svg><a><set attributeName=href to=//x.y /></a></svg>",
    "<a ping=//x.y>p</a>",
  ];
  for (const one of elsewhere) expect(buildFramePage(`<p>hi</p>${one}`, false), one).not.toContain("x.y");
  expect(body("<a href='http://x.y/z'>z</a>")).toBe('<a title="http://x.y/z">z</a>');
  expect(body('<svg><a xlink:href="http://x.y"><text>t</text></a></svg>', true)).toContain('<a title="http://x.y">');
});

it("leaves the rest as it is", () => {
  expect(body('<base href=//x.y/><p onclick="f()" class="a">a on b=c</p><object data=//x.y></object><b>end</b>')).toBe(
    '<p data-onclick="f()" class="a">a on b=c</p><b>end</b>',
  );
});

it("is looked at again after something was taken out", () => {
  const page = buildFramePage(
    "<svg><style><!--</style><script>--><link rel=preconnect href=//x.y></script></svg><math><mtext><table><mglyph><style><math><link href=//x.y>",
    false,
  );
  expect(new DOMParser().parseFromString(page, "text/html").querySelectorAll("link, script").length).toBe(0);
});
