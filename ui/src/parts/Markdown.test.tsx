import { render, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { Markdown } from "./Markdown";

const HOSTILE = [
  "<script>window.hit = 1</script>",
  '<img src="https://elsewhere.example/x.png" onerror="window.hit = 1">',
  "![x](https://elsewhere.example/x.png)",
  "[x](javascript:window.hit=1)",
  "<a href='javascript:window.hit=1'>x</a>",
  "<iframe srcdoc='<script>window.hit=1</script>'></iframe>",
  "<style>* { background: url(https://elsewhere.example/x) }</style>",
  '```x" onmouseover="window.hit=1\ncode\n```',
  "$$\\href{javascript:window.hit=1}{x}$$",
  "$$\\includegraphics{https://elsewhere.example/x.png}$$",
  "<svg><animate onbegin='window.hit=1' attributeName=x dur=1s></svg>",
];

describe("Markdown", () => {
  it.each(HOSTILE)("runs nothing and asks for nothing: %s", async (text) => {
    const { container } = render(<Markdown text={text} />);
    await new Promise((done) => setTimeout(done, 150));
    expect((window as unknown as { hit?: number }).hit).toBeUndefined();
    expect(
      container.querySelector("script, iframe, style, svg animate, [onerror], [onmouseover], [onbegin]"),
    ).toBeNull();
    for (const part of container.querySelectorAll("[src]")) expect(part.getAttribute("src")).toMatch(/^(data|blob):/);
    for (const part of container.querySelectorAll("[href]")) expect(part.getAttribute("href")).toMatch(/^https?:/);
  });

  it("shows tables, code in colours and maths", async () => {
    const { container } = render(
      <Markdown text={"| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\ndef f(): pass\n```\n\n$$x^2$$"} />,
    );
    await waitFor(() => expect(container.querySelector(".hljs-keyword")?.textContent).toBe("def"));
    expect(container.querySelectorAll("td").length).toBe(2);
    expect(container.querySelector(".katex")).not.toBeNull();
  });

  it("leaves the finished parts of a growing text as they are, and their drawing to the browser", () => {
    const section = (at: number) => `## Part ${at}\n\n${"words ".repeat(60)}\n\n`;
    let text = Array.from({ length: 40 }, (_, at) => section(at)).join("");
    const { container, rerender } = render(<Markdown text={text} grows />);
    const before = [...container.querySelectorAll("p")];
    const states = () =>
      [...container.querySelectorAll(".markdown-chunk")].map((one) => one.matches(".markdown-settled"));
    expect(states().slice(-2)).toEqual([true, false]);
    for (const piece of ["## Last", "\n\nand **more**", " of it"]) rerender(<Markdown text={(text += piece)} grows />);
    before.forEach((paragraph, at) => expect(container.querySelectorAll("p")[at]).toBe(paragraph));
    expect(container.querySelector("p strong")?.textContent).toBe("more");
    rerender(<Markdown text={text} />);
    expect(states()).not.toContain(true); // all of it is drawn and measured
    expect(container.querySelector("p")).toBe(before[0]);
  });

  it("leaves the earlier rows of a growing table as they are, and names their roles", () => {
    let text = `| a | b |\n|---|--:|\n${Array.from({ length: 90 }, (_, at) => `| ${at} | n${at} |\n`).join("")}`;
    const { container, rerender } = render(<Markdown text={text} grows />);
    const before = [...container.querySelectorAll("tbody tr")];
    const settled = () => [...container.querySelectorAll("tbody")].map((one) => one.matches(".longTable-settled"));
    expect(before.length).toBe(90);
    expect(settled()).toEqual([true, true, true, false]);
    rerender(<Markdown text={(text += "| 90 | n90 |\n")} grows />);
    before.slice(0, 75).forEach((row, at) => expect(container.querySelectorAll("tbody tr")[at]).toBe(row));
    expect(container.querySelectorAll("[role=table] [role=row] [role=cell]").length).toBe(182);
    expect(container.querySelectorAll("[role=columnheader]").length).toBe(2);
    rerender(<Markdown text={text} />);
    expect(settled()).not.toContain(true);
  });
});
