import { useEffect, useRef, useState } from "react";

import { patch, useApp } from "../state/app";
import { type Command, matching, shortcut } from "../state/commands";

export function Overlays({ commands }: { commands: Command[] }) {
  const overlay = useApp((state) => state.overlay);
  if (overlay === "palette") return <Palette commands={commands} />;
  if (overlay === "shortcuts") return <Shortcuts commands={commands} />;
  return null;
}

/** A dialog of the browser's own: it keeps the focus inside, and Escape closes it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: React.ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-label={title} onClose={close} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      {children}
    </dialog>
  );
}

const close = () => patch({ overlay: null });

function Palette({ commands }: { commands: Command[] }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const found = matching(commands, typed).slice(0, 12);
  const chosen = Math.min(at, found.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  const move = (event: React.KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "Enter") run(found[chosen]);
    if (!step || !found.length) return;
    event.preventDefault();
    setAt((chosen + step + found.length) % found.length);
  };
  return (
    <Dialog title="Commands" close={close}>
      <input autoFocus role="combobox" aria-expanded="true" aria-controls="commands" aria-activedescendant={found[chosen] ? `command-${chosen}` : undefined} aria-label="What do you want to do?" placeholder="What do you want to do?" value={typed} onChange={(event) => { setTyped(event.target.value); setAt(0); }} onKeyDown={move} />
      <ul id="commands" role="listbox" aria-label="Commands">
        {found.map((command, place) => (
          <li key={command.id} id={`command-${place}`} role="option" aria-selected={place === chosen} onMouseMove={() => setAt(place)} onClick={() => run(command)}>
            <span>{command.title}</span><small>{command.group}</small>{command.keys && <kbd>{shortcut(command.keys)}</kbd>}
          </li>
        ))}
      </ul>
      {!found.length && <p className="empty">There is no such command.</p>}
    </Dialog>
  );
}

function Shortcuts({ commands }: { commands: Command[] }) {
  const groups = [...new Set(commands.filter((one) => one.keys).map((one) => one.group))];
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <h2>Keyboard shortcuts</h2>
      {groups.map((group) => (
        <section key={group}>
          <h3>{group}</h3>
          <dl>{commands.filter((one) => one.group === group && one.keys).map((one) => <div key={one.id}><dt>{one.title}</dt><dd><kbd>{shortcut(one.keys!)}</kbd></dd></div>)}</dl>
        </section>
      ))}
      <button onClick={close}>Close</button>
    </Dialog>
  );
}
