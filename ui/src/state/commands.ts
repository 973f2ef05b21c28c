/** Everything that can be done, in one list: the palette, the shortcuts and the sheet of shortcuts read it. */

export interface Command {
  id: string;
  title: string;
  group: string;
  keys?: string; // as "mod+k", "g t" is two keys one after the other
  run: () => void;
  enabled?: () => boolean;
}

export function matchCommands(commands: Command[], typed: string): Command[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const able = commands.filter((command) => command.enabled?.() ?? true);
  const scored = able.map((command) => ({
    command,
    score: scoreMatch(`${command.title} ${command.group}`.toLowerCase(), words),
  }));
  return scored
    .filter((row) => row.score > 0)
    .sort((a, b) => b.score - a.score || a.command.title.localeCompare(b.command.title))
    .map((row) => row.command);
}

function scoreMatch(text: string, words: string[]): number {
  let sum = 1;
  for (const word of words) {
    const at = text.indexOf(word);
    if (at < 0) return 0;
    sum += at === 0 ? 3 : text[at - 1] === " " ? 2 : 1;
  }
  return sum;
}

/** Which command a key is for; `held` is the first key of two. */
export function commandForKey(
  commands: Command[],
  event: KeyboardEvent,
  held: string,
): { command?: Command; held: string } {
  const key = keyName(event);
  const typing =
    event.target instanceof HTMLElement &&
    (event.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName));
  if (typing && !/^(mod|alt)\+|^escape$/.test(key)) return { held: "" };
  const full = held ? `${held} ${key}` : key;
  const able = commands.filter((command) => command.keys && (command.enabled?.() ?? true));
  const command = able.find((one) => one.keys === full);
  if (command) return { command, held: "" };
  return { held: able.some((one) => one.keys!.startsWith(`${key} `)) ? key : "" };
}

function keyName(event: KeyboardEvent): string {
  const parts = [];
  if (event.ctrlKey || event.metaKey) parts.push("mod");
  if (event.altKey) parts.push("alt");
  if (event.shiftKey && event.key.length > 1) parts.push("shift");
  return [...parts, event.altKey ? keyWithoutAlt(event) : event.key.toLowerCase()].join("+");
}

/** On a Mac, Alt with a key types another character: the key code identifies the key. */
function keyWithoutAlt({ code, key }: KeyboardEvent): string {
  return (/^(?:Digit|Key)(\w)$/.exec(code)?.[1] ?? key).toLowerCase();
}

export function shortcut(keys: string, mac = /Mac|iPhone|iPad/.test(navigator.userAgent)): string {
  return keys
    .replace("mod+", mac ? "⌘" : "Ctrl+")
    .replace("alt+", mac ? "⌥" : "Alt+")
    .replace("shift+", mac ? "⇧" : "Shift+")
    .replace("escape", "Esc")
    .replace(/\b[a-z]$/, (letter) => letter.toUpperCase());
}
