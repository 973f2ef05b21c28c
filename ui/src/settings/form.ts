/** Forms from a JSON Schema: the kind of each field, and changes of its value. */

export type Value = unknown;
export interface Schema {
  type?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  pattern?: string;
  "x-on"?: boolean; // a capability that is on unless it is switched off
  "x-role"?: string;
  "x-note"?: string;
  "x-group"?: string;
}

export type Kind =
  "capability" | "variants" | "choice" | "switch" | "number" | "text" | "lines" | "group" | "map" | "json";

/** The forms of a value that can be written: no null, and no name of code. */
function writable(schema: Schema): Schema[] {
  return (schema.anyOf ?? [schema]).filter((one) => one.type !== "null" && !one.pattern);
}

const isGroup = (schema: Schema): boolean => Object.keys(schema.properties ?? {}).length > 0;
const isText = (schema: Schema): boolean => writable(schema).every((one) => one.type === "string");

export function kindOf(schema: Schema): Kind {
  const forms = writable(schema);
  const types = new Set(forms.map((one) => one.type));
  if (forms.some((one) => one.const === false)) return "variants";
  if (types.has("boolean") && forms.length > 1) return "capability";
  const [only] = forms;
  if (forms.length === 1 && only) {
    if (only.enum) return "choice";
    if (only.type === "boolean") return "switch";
    if (only.type === "integer" || only.type === "number") return "number";
    if (only.type === "string") return "text";
    if (only.type === "array" && only.items && writable(only.items).some(isText)) return "lines";
    if (isGroup(only)) return "group";
    if (typeof only.additionalProperties === "object" && mapItem(only)) return "map";
  }
  if (types.has("number")) return "number";
  if (types.has("array") && forms.every((one) => one.type === "string" || kindOf(one) === "lines")) return "lines";
  return isText(schema) ? "text" : types.has("string") && types.has("object") && forms.length === 2 ? "text" : "json";
}

/** The schema of the values of a map, if they are texts or groups. */
function mapItem(schema: Schema): Schema | null {
  const item = schema.additionalProperties;
  return typeof item === "object" && (isText(item) || isGroup(item)) && item.type ? item : null;
}

export const groupOf = (schema: Schema): Schema => writable(schema).find(isGroup) ?? {};
export const itemOf = (schema: Schema): Schema => mapItem(writable(schema)[0] ?? {}) ?? { type: "string" };
export const choicesOf = (schema: Schema): string[] => (writable(schema)[0]?.enum ?? []).map(String);
export const isWhole = (schema: Schema): boolean => writable(schema).every((one) => one.type === "integer");

/** The variants of a value with a `type`, by their names. */
export function variantsOf(schema: Schema): Record<string, Schema> {
  const typed = writable(schema).filter((one) => one.properties?.["type"]?.const);
  return Object.fromEntries(typed.map((one) => [String(one.properties!["type"]!.const), one]));
}

export type Fields = Record<string, Value>;
export const asFields = (value: Value): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};

/** Set a field of a map; undefined and empty values remove it. */
export function withField(fields: Fields, key: string, value: Value): Fields {
  const { [key]: _, ...rest } = fields;
  const empty = value === undefined || value === "" || (Array.isArray(value) && !value.length);
  return empty ? rest : { ...fields, [key]: value };
}

export const toLines = (value: Value): string =>
  (Array.isArray(value) ? value : value === undefined ? [] : [value])
    .map((one) => (typeof one === "string" ? one : JSON.stringify(one)))
    .join("\n");

/** A list of one item for each line. A line that is a JSON object stays one, such as a rule with a message. */
export function fromLines(text: string): Value {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line) => (line.trim().startsWith("{") ? (tryJson(line) ?? line) : line));
}

export function tryJson(text: string): Value {
  try {
    return JSON.parse(text) as Value;
  } catch {
    return undefined;
  }
}

export const HIDDEN = "•••";

/** Options without hidden values, for a copy: the server does not give them out. */
export function withoutHidden(value: Value): Value {
  if (Array.isArray(value)) return value.filter((one) => one !== HIDDEN).map(withoutHidden);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, one]) => one !== HIDDEN);
  return Object.fromEntries(kept.map(([key, one]) => [key, withoutHidden(one)]));
}

/** The name of a field for people: `tool_calls` becomes "tool calls". */
export const labelOf = (key: string): string => key.replaceAll("_", " ");

/** A description without the marks of code. */
export const plainText = (text = ""): string => text.replaceAll("`", "");
