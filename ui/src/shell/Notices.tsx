import { dismiss, useApp } from "../state/app";

export function Notices() {
  const notices = useApp((state) => state.notices);
  const online = useApp((state) => state.online);
  return (
    <div className="notices" role="status" aria-live="polite">
      {!online && <p className="notice error">The connection is lost; wick tries to get it back.</p>}
      {notices.map((one) => (
        <p key={one.id} className={`notice ${one.kind}`}>
          <span>{one.text}</span>
          <button className="plain" onClick={() => dismiss(one.id)} aria-label="Dismiss">✕</button>
        </p>
      ))}
    </div>
  );
}
