import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

import { expect, it } from "vitest";

const ROOT = join(process.cwd(), "src");
const files = readdirSync(ROOT, { recursive: true, encoding: "utf8" });
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const modules = files.filter((file) => file.endsWith(".module.css"));
const components = files.filter((file) => file.endsWith(".tsx") && !file.includes(".test."));

const toCamel = (name: string) => name.replace(/[-_](\w)/g, (_, letter: string) => letter.toUpperCase());

/** Return the class names that the rules of a style sheet select. */
function definedClasses(css: string): Set<string> {
  const rules = css.replace(/\/\*.*?\*\//gs, "").replace(/:global\([^)]*\)/g, "");
  const selectors = [...rules.matchAll(/([^{};]+)\{/g)].map((found) => found[1]!).filter((one) => !/^\s*@/.test(one));
  return new Set(selectors.flatMap((one) => [...one.matchAll(/\.([a-z][\w-]*)/gi)].map((found) => found[1]!)));
}

/** Return the modules that a component imports, each with the classes that it reads. */
function usedClasses(code: string): [string, string[]][] {
  return [...code.matchAll(/import (\w+) from "[^"]*?([\w-]+\.module\.css)"/g)].map((found) => [
    found[2]!,
    [...code.matchAll(new RegExp(`\\b${found[1]!}\\.(?!module\\.css)(\\w+)`, "g"))].map((use) => use[1]!),
  ]);
}

it("names each module once, since its name is the prefix of its classes", () => {
  const names = modules.map((file) => basename(file));
  expect(names.length).toBeGreaterThan(10);
  expect(new Set(names).size).toBe(names.length);
});

it("uses classes that exist, and has no others", () => {
  const used = new Map(modules.map((file) => [basename(file), new Set<string>()]));
  for (const file of components)
    for (const [name, classes] of usedClasses(read(file))) for (const one of classes) used.get(name)!.add(one);
  for (const file of modules)
    expect([file, [...used.get(basename(file))!].sort()]).toEqual([
      file,
      [...definedClasses(read(file))].map(toCamel).sort(),
    ]);
});

it("takes class names in quotes from the theme", () => {
  const shared = definedClasses(read("theme.css"));
  const quoted = components.flatMap((file) =>
    [...read(file).matchAll(/className="([^"]*)"/g)].flatMap((found) => found[1]!.split(" ")),
  );
  expect(quoted.length).toBeGreaterThan(50);
  expect([...new Set(quoted)].filter((name) => !shared.has(name))).toEqual([]);
});
