import { useState } from "react";

import { type Panel, patchApp, setTheme, type Theme, useApp } from "../state/app";
import { type Command, matchCommands, shortcut } from "../state/commands";
import { showPanel } from "../state/layout";
import { signOut } from "../state/session";
import { Dialog } from "./Dialog";
import { Icon } from "./Icon";
import { Waiting } from "./TopBar";
import styles from "./shell.module.css";

type Panels = { id: Panel; title: string }[];

export function Overlays({ commands, panels }: { commands: Command[]; panels: Panels }) {
  const overlay = useApp((state) => state.overlay);
  if (overlay === "palette") return <Palette commands={commands} />;
  if (overlay === "shortcuts") return <Shortcuts commands={commands} />;
  if (overlay === "menu") return <Menu panels={panels} />;
  return null;
}

const closeOverlay = () => patchApp({ overlay: null });

function Palette({ commands }: { commands: Command[] }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const found = matchCommands(commands, typed).slice(0, 12);
  const chosen = Math.min(at, found.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    closeOverlay();
    setTimeout(command.run); // once the focus is back, so that a command can move it
  };
  const move = (event: React.KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "Enter") run(found[chosen]);
    if (!step || !found.length) return;
    event.preventDefault();
    setAt((chosen + step + found.length) % found.length);
  };
  return (
    <Dialog title="Commands" close={closeOverlay}>
      <input
        data-first
        role="combobox"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={found[chosen] ? `command-${chosen}` : undefined}
        aria-label="Search commands"
        placeholder="Search commands"
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={move}
      />
      <ul id="commands" role="listbox" aria-label="Commands">
        {found.map((command, place) => (
          <li
            key={command.id}
            id={`command-${place}`}
            role="option"
            aria-selected={place === chosen}
            onMouseMove={() => setAt(place)}
            onClick={() => run(command)}
          >
            <span>{command.title}</span>
            <small>{command.group}</small>
            {command.keys && <kbd>{shortcut(command.keys)}</kbd>}
          </li>
        ))}
      </ul>
      {!found.length && <p className="empty">No matching commands.</p>}
    </Dialog>
  );
}

function Shortcuts({ commands }: { commands: Command[] }) {
  const groups = [...new Set(commands.filter((one) => one.keys).map((one) => one.group))];
  return (
    <Dialog title="Keyboard shortcuts" close={closeOverlay}>
      <h2>Keyboard shortcuts</h2>
      <div className={styles.sheet}>
        {groups.map((group) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {commands
                .filter((one) => one.group === group && one.keys)
                .map((one) => (
                  <div key={one.id}>
                    <dt>{one.title}</dt>
                    <dd>
                      <kbd>{shortcut(one.keys!)}</kbd>
                    </dd>
                  </div>
                ))}
            </dl>
          </section>
        ))}
      </div>
      <button data-first onClick={closeOverlay}>
        Close
      </button>
    </Dialog>
  );
}

/** The menu of small screens: panels and account. */
function Menu({ panels }: { panels: Panels }) {
  const theme = useApp((state) => state.theme);
  const name = useApp((state) => state.me?.username ?? "");
  const show = (panel: Panel) => (closeOverlay(), showPanel(panel));
  return (
    <Dialog title="Menu" close={closeOverlay}>
      <nav className={styles.menu} aria-label="Panels">
        {panels.map(({ id, title }) => (
          <button key={id} onClick={() => show(id)}>
            {title}
            {id === "approvals" && <Waiting />}
          </button>
        ))}
      </nav>
      <div className={styles.menu}>
        <button onClick={() => patchApp({ overlay: "palette" })}>Commands</button>
        <label>
          Theme{" "}
          <select value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
            {["system", "light", "dark"].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <button onClick={() => (closeOverlay(), void signOut())}>
          <Icon name="leave" /> Sign out {name}
        </button>
      </div>
    </Dialog>
  );
}
