/** The language of a file, loaded when such a file is opened. */

import { type LanguageSupport, StreamLanguage, type StreamParser } from "@codemirror/language";
import type { Extension } from "@codemirror/state";

import { ending } from "./kind";

type Load = () => Promise<Extension>;

const stream = (load: () => Promise<StreamParser<unknown>>): Load => async () => StreamLanguage.define(await load());
const js = (options: { jsx?: boolean; typescript?: boolean }): Load => async (): Promise<LanguageSupport> => (await import("@codemirror/lang-javascript")).javascript(options);
const clike = (name: "c" | "cpp" | "java" | "csharp" | "kotlin" | "scala"): Load => stream(async () => (await import("@codemirror/legacy-modes/mode/clike"))[name]);

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
  sh: stream(async () => (await import("@codemirror/legacy-modes/mode/shell")).shell),
  yml: stream(async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml),
  yaml: stream(async () => (await import("@codemirror/legacy-modes/mode/yaml")).yaml),
  toml: stream(async () => (await import("@codemirror/legacy-modes/mode/toml")).toml),
  sql: stream(async () => (await import("@codemirror/legacy-modes/mode/sql")).standardSQL),
  go: stream(async () => (await import("@codemirror/legacy-modes/mode/go")).go),
  rs: stream(async () => (await import("@codemirror/legacy-modes/mode/rust")).rust),
  rb: stream(async () => (await import("@codemirror/legacy-modes/mode/ruby")).ruby),
  r: stream(async () => (await import("@codemirror/legacy-modes/mode/r")).r),
  lua: stream(async () => (await import("@codemirror/legacy-modes/mode/lua")).lua),
  swift: stream(async () => (await import("@codemirror/legacy-modes/mode/swift")).swift),
  xml: stream(async () => (await import("@codemirror/legacy-modes/mode/xml")).xml),
  svg: stream(async () => (await import("@codemirror/legacy-modes/mode/xml")).xml),
  c: clike("c"),
  h: clike("c"),
  cpp: clike("cpp"),
  java: clike("java"),
  cs: clike("csharp"),
  kt: clike("kotlin"),
  scala: clike("scala"),
  dockerfile: stream(async () => (await import("@codemirror/legacy-modes/mode/dockerfile")).dockerFile),
};

/** The language that a name stands for; nothing where none is known. */
export async function language(name: string): Promise<Extension> {
  const load = LANGUAGES[ending(name) || name.split("/").at(-1)!.toLowerCase()];
  return load ? load() : [];
}
