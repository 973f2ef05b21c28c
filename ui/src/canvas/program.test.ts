import { expect, it } from "vitest";

import { buildProgram, compileScript } from "./program";

it("compiles a component to calls of the modules in the frame", async () => {
  const code = await compileScript(
    "jsx",
    `import { useState } from "react"\nexport default () => <b>{useState(1)[0]}</b>`,
  );
  expect(code).toContain('require("react/jsx-runtime")');
  expect(code.split("\n").length).toBe(2); // errors name the line of the source
});

it("leaves types out", async () => expect(await compileScript("ts", "const a: number = 1")).not.toContain("number"));

it("says where a file is not valid", async () =>
  await expect(compileScript("jsx", "const a = <b>\n")).rejects.toThrow(/\(\d+:\d+\)/));

it("takes HTML as it is", async () =>
  expect(await buildProgram("a.html", "<h1>Hello</h1>")).toEqual({ html: "<h1>Hello</h1>" }));
