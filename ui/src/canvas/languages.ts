/** The language of a file, loaded when such a file is opened. */

import { type LanguageSupport, StreamLanguage, type StreamParser } from "@codemirror/language";
import type { Extension } from "@codemirror/state";

import { extensionOf } from "./kind";

type Load = () => Promise<Extension>;

const streamLanguage =
  (load: () => Promise<StreamParser<unknown>>): Load =>
  async () =>
    StreamLanguage.define(await load());
const js =
  (options: { jsx?: boolean; typescript?: boolean }): Load =>
  async (): Promise<LanguageSupport> =>
    (await import("@codemirror/lang-javascript")).javascript(options);
const clike = (name: "c" | "cpp" | "java" | "csharp" | "kotlin" | "scala"): Load =>
  streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/clike"))[name]);

const LANGUAGES: Record<string, Load> = {
  py: async () => (await import("@codemirror/lang-python")).python(),
  js: js({ jsx: true }),
  mjs: js({}),
  cjs: js({}),
  jsx: js({ jsx: true }),
  ts: js({ typescript: true }),
  tsx: js({ jsx: true, typescript: true }),
  json: async () => (await import("@codemirror/lang-json")).json(),
  html: async () => (await import("@codemirror/lang-html")).html(),
  htm: async () => (await import("@codemirror/lang-html")).html(),
  css: async () => (await import("@codemirror/lang-css")).css(),
  md: async () => (await import("@codemirror/lang-markdown")).markdown(),
  sh: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/shell")).shell),
  yml: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml),
  yaml: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml),
  toml: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/toml")).toml),
  sql: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/sql")).standardSQL),
  go: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/go")).go),
  rs: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/rust")).rust),
  rb: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/ruby")).ruby),
  r: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/r")).r),
  lua: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/lua")).lua),
  swift: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/swift")).swift),
  xml: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/xml")).xml),
  svg: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/xml")).xml),
  c: clike("c"),
  h: clike("c"),
  cpp: clike("cpp"),
  java: clike("java"),
  cs: clike("csharp"),
  kt: clike("kotlin"),
  scala: clike("scala"),
  dockerfile: streamLanguage(async () => (await import("@codemirror/legacy-modes/mode/dockerfile")).dockerFile),
};

/** The language of a name, or an empty extension. */
export async function loadLanguage(name: string): Promise<Extension> {
  const load = LANGUAGES[extensionOf(name) || name.split("/").at(-1)!.toLowerCase()];
  return load ? load() : [];
}
