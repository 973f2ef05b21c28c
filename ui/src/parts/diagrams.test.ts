import { expect, it } from "vitest";

import { checkSize, disarm, toPicture } from "./diagrams";

it("makes a picture without scripts, handlers and links", () => {
  const made = toPicture(
    '<svg viewBox="0 0 90.5 40" onload="x()"><script>x()</script><a xlink:href="javascript:x()" href="https://a.example"><text onclick="x()">A &nbsp;<tspan>&lt;b></tspan></text></a><image href="https://a.example/i.png"/><style>p{}</style></svg>',
  );
  expect(made).toMatchObject({ width: 90.5, height: 40 });
  expect(made.svg).not.toMatch(/script|onload|onclick|href|image|a\.example/);
  const parsed = new DOMParser().parseFromString(made.svg, "image/svg+xml");
  expect(parsed.querySelector("parsererror")).toBeNull();
  expect(parsed.querySelector("text")!.textContent).toBe("A \u00a0<b>");
});

it("refuses what would take too long to draw", () => {
  checkSize(`graph TD\n${"A-->B\n".repeat(300)}`);
  for (const source of [`graph TD\n${"A-->B\n".repeat(500)}`, `graph TD\n${"A & ".repeat(500)}B`, "x".repeat(20_001)])
    expect(() => checkSize(source)).toThrow("It is too large");
});

it("takes tags and addresses out of a source, and leaves arrows and line breaks", () => {
  const kept = "graph TD\n  A<-->B[one<br/>two<br>three]\n  C <|-- D\n  <<interface>> E\n  a < b";
  expect(disarm(kept)).toBe(kept);
  expect(disarm("A[<img src=x>] <<img src=x> </p> <!-- &lt;p #lt;p &#60;p &#x3C;p")).toBe(
    "A[‹img src=x>] <‹img src=x> ‹/p> ‹!-- ‹p ‹p ‹p ‹p",
  );
  expect(disarm("sequenceDiagram\n  A->>B: x\n  link A: y @ z")).toBe("sequenceDiagram\n  A->>B: x\n");
  expect(disarm('style A fill:URL (x)\nA@{ "img": "x" }')).toBe('style A fill:url-(x)\nA@{ "alt": "x" }');
});
