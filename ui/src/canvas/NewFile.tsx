/** Begin a file: its name says what it is going to be. */

import { useState } from "react";

import { openText } from "./open";

export function NewFile() {
  const [name, setName] = useState("");
  const begin = (event: React.FormEvent) => {
    event.preventDefault();
    if (name.trim()) openText(name.trim(), starter(name.trim()));
  };
  return (
    <form className="new-file" onSubmit={begin}>
      <label htmlFor="new-file">Or create one:</label>
      <input id="new-file" placeholder="notes.md" value={name} onChange={(event) => setName(event.target.value)} />
      <button disabled={!name.trim()}>Create</button>
    </form>
  );
}

/** A first line, so that there is something to look at. */
function starter(name: string): string {
  if (/\.(csv|tsv)$/i.test(name)) return `name${/\.tsv$/i.test(name) ? "\t" : ","}value\n`;
  return /\.md$/i.test(name) ? `# ${name.replace(/^.*\/|\.\w+$/g, "")}\n` : "\n";
}
