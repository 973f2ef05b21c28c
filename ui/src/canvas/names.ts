/** Names of files: as they are shown, and as they may be. */

/** A name with a sign in place of every character that would hide, break a line or turn the others around. */
export const showInvisible = (name: string): string =>
  name.replace(/[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, "\ufffd");

/** Client-side errors of a name. */
export function badName(name: string): string {
  if (!name.trim()) return "Enter a name.";
  if (name.split("/").some((part) => part === "" || part === "." || part === ".."))
    return "A name cannot contain empty parts, . or ..";
  return "";
}
