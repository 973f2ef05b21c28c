import { serverUrl } from "../api/http";
import { type Panel, patchApp, setTheme, type Theme, useApp } from "../state/app";
import { shownPanels, toggleSidebar, togglePanel } from "../state/layout";
import { canNotify, toggleNotifications } from "../state/notifications";
import { signOut } from "../state/session";
import { shortcut } from "../state/commands";
import { chooseAgent } from "../state/threads";
import { Icon, type IconName } from "./Icon";
import { useNarrow } from "./useNarrow";
import { joinClasses } from "../parts/classes";
import styles from "./shell.module.css";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const DRAWN: Record<Theme, IconName> = { system: "screen", light: "sun", dark: "moon" };

export function TopBar({ panels }: { panels: { id: Panel; title: string }[] }) {
  const narrow = useNarrow();
  const open = useApp((state) => (narrow ? state.drawer : state.sidebar));
  return (
    <header className={styles.top}>
      <button
        className="plain"
        aria-label="Threads"
        title={`Threads (${shortcut("mod+b")})`}
        aria-expanded={open}
        onClick={toggleSidebar}
      >
        <Icon name="menu" />
      </button>
      <strong className={styles.brand}>
        <img src={serverUrl("/wick.svg")} alt="" width="22" height="22" /> <span>wick</span>
      </strong>
      <Agents />
      <nav aria-label="Panels" className="only-large">
        {panels
          .filter((one) => one.id !== "settings")
          .map((one) => (
            <Tab key={one.id} {...one} />
          ))}
      </nav>
      <span className="grow" />
      <You />
      <span className="only-small">
        <Waiting />
      </span>
      <button className="plain only-small" aria-label="Menu" onClick={() => patchApp({ overlay: "menu" })}>
        <Icon name="more" />
      </button>
    </header>
  );
}

function Agents() {
  const agents = useApp((state) => state.agents);
  const agent = useApp((state) => state.agent);
  return (
    <>
      <label className="visually-hidden" htmlFor="agent">
        Agent
      </label>
      <select id="agent" value={agent} onChange={(event) => chooseAgent(event.target.value)}>
        {agent && !agents.some((one) => one.agent_id === agent) && (
          <option value={agent}>{agent} (not there any more)</option>
        )}
        {agents.map((one) => (
          <option key={one.agent_id} value={one.agent_id}>
            {one.name}
            {one.name === one.agent_id ? "" : ` (${one.agent_id})`}
          </option>
        ))}
      </select>
    </>
  );
}

function Tab({ id, title }: { id: Panel; title: string }) {
  const open = useApp((state) => shownPanels(state).includes(id));
  return (
    <button className={styles.tab} aria-pressed={open} onClick={() => togglePanel(id)}>
      {title}
      {id === "approvals" && <Waiting />}
    </button>
  );
}

export function Waiting() {
  const count = useApp((state) => state.approvals.length);
  return count ? (
    <span className={styles.badge} role="status" aria-label={`${count} waiting`}>
      {count}
    </span>
  ) : null;
}

function Bell() {
  const on = useApp((state) => state.notifies);
  return (
    <button
      className="plain"
      aria-pressed={on}
      onClick={() => void toggleNotifications()}
      aria-label="Desktop notifications"
      title={`Desktop notifications: ${on ? "on" : "off"}`}
    >
      <Icon name={on ? "bell" : "mute"} />
    </button>
  );
}

function You() {
  const theme = useApp((state) => state.theme);
  const name = useApp((state) => state.me?.username ?? "");
  const settings = useApp((state) => state.panel === "settings");
  return (
    <span className={joinClasses(styles.you, "only-large")}>
      <button
        className="plain"
        onClick={() => patchApp({ overlay: "palette" })}
        aria-label="Commands"
        title={`Commands (${shortcut("mod+k")})`}
      >
        <Icon name="search" />
      </button>
      <button
        className="plain"
        onClick={() => patchApp({ overlay: "shortcuts" })}
        aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"
      >
        <Icon name="help" />
      </button>
      <button
        className="plain"
        aria-pressed={settings}
        onClick={() => patchApp({ panel: settings ? null : "settings" })}
        aria-label="Settings"
        title={`Settings (${shortcut("mod+,")})`}
      >
        <Icon name="settings" />
      </button>
      {canNotify() && <Bell />}
      <button
        className="plain"
        onClick={() => setTheme(NEXT[theme])}
        aria-label={`Theme: ${theme}`}
        title={`Theme: ${theme}`}
      >
        <Icon name={DRAWN[theme]} />
      </button>
      <span className={styles.name} title={`Signed in as ${name}`}>
        {name}
      </span>
      <button className="plain" onClick={() => void signOut()} aria-label={`Sign out ${name}`} title="Sign out">
        <Icon name="leave" />
      </button>
    </span>
  );
}
