/** A file as a program for the frame of the canvas: HTML as it is, JavaScript and JSX compiled. */

import type { Transform } from "sucrase";

import { extensionOf } from "./kind";
import modulesUrl from "./frameModules?worker&url";

export interface Program {
  html: string;
  code?: string;
  runtime?: string;
  name?: string;
}

const PAGE = `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body{font:15px/1.5 system-ui,sans-serif;margin:16px}</style><div id="root"></div>`;

const TRANSFORMS: Record<string, Transform[]> = {
  ts: ["typescript", "imports"],
  tsx: ["typescript", "jsx", "imports"],
};

/** Compile a file; raise an error with the line where it is not valid. */
export async function buildProgram(name: string, text: string): Promise<Program> {
  const end = extensionOf(name);
  if (end === "html" || end === "htm") return { html: text };
  const code = await compileScript(end, text);
  const needed = /\brequire\(['"]react/.test(code);
  return {
    html: PAGE,
    code,
    name: name.replace(/[^\w.-]/g, "_"),
    ...(needed ? { runtime: await fetch(modulesUrl).then((answer) => answer.text()) } : {}),
  };
}

export async function compileScript(end: string, text: string): Promise<string> {
  const { transform } = await import("sucrase");
  const options = { transforms: TRANSFORMS[end] ?? ["jsx", "imports"], production: true } as const;
  return transform(text, { ...options, transforms: [...options.transforms], jsxRuntime: "automatic" }).code;
}
