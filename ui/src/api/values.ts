/** Values of the API whose type the server does not describe. */

/** Return a JSON value as text: a string as it is, anything else as JSON. */
export function formatValue(value: unknown, otherwise = ""): string {
  if (value === undefined || value === null) return otherwise;
  return typeof value === "string" ? value : JSON.stringify(value);
}
