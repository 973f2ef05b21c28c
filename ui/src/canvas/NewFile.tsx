/** Create a file; its name determines its kind. */

import { useState } from "react";

import { openText } from "./open";
import styles from "./canvas.module.css";

export function NewFile() {
  const [name, setName] = useState("");
  const begin = (event: React.FormEvent) => {
    event.preventDefault();
    if (name.trim()) openText(name.trim(), starterText(name.trim()));
  };
  return (
    <form className={styles.newFile} onSubmit={begin}>
      <label htmlFor="new-file">Or create one:</label>
      <input id="new-file" placeholder="notes.md" value={name} onChange={(event) => setName(event.target.value)} />
      <button disabled={!name.trim()}>Create</button>
    </form>
  );
}

/** An initial line, so that there is something to see. */
function starterText(name: string): string {
  if (/\.(csv|tsv)$/i.test(name)) return `name${/\.tsv$/i.test(name) ? "\t" : ","}value\n`;
  return /\.md$/i.test(name) ? `# ${name.replace(/^.*\/|\.\w+$/g, "")}\n` : "\n";
}
