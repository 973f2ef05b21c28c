import { newThread, patch, type Panel, setTheme, signOut, type Theme, useApp } from "../state/app";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function TopBar({ panels }: { panels: [Panel, string][] }) {
  const { agents, agent, panel, theme, me, approvals } = useApp((state) => state);
  return (
    <header className="top">
      <button className="plain only-small" aria-label="Threads" onClick={() => document.documentElement.toggleAttribute("data-threads")}>☰</button>
      <strong className="brand"><img src="/wick.svg" alt="" width="20" height="20" /> wick</strong>
      <label className="visually-hidden" htmlFor="agent">Agent</label>
      <select id="agent" value={agent} onChange={(event) => { patch({ agent: event.target.value }); newThread(); }}>
        {agents.map((one) => <option key={one.agent_id} value={one.agent_id}>{one.name}</option>)}
      </select>
      <nav aria-label="Panels">
        {panels.map(([id, title]) => (
          <button key={id} className="tab" aria-pressed={panel === id} onClick={() => patch({ panel: panel === id ? null : id })}>
            {title}{id === "approvals" && approvals.length > 0 && <span className="badge" aria-label={`${approvals.length} waiting`}>{approvals.length}</span>}
          </button>
        ))}
      </nav>
      <span className="grow" />
      <button className="plain" onClick={() => patch({ overlay: "palette" })} aria-label="Commands">⌕</button>
      <button className="plain" onClick={() => setTheme(NEXT[theme])} aria-label={`Theme: ${theme}`}>◐</button>
      <button className="plain" onClick={() => void signOut()} aria-label={`Sign out ${me?.username ?? ""}`}>⎋</button>
    </header>
  );
}
