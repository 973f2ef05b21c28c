import { dismiss, useApp } from "../state/app";
import { Icon } from "./Icon";

export function Notices() {
  const notices = useApp((state) => state.notices);
  const online = useApp((state) => state.online);
  return (
    <div className="notices" role="status" aria-live="polite">
      {!online && <p className="notice error">Connection lost. Reconnecting; no messages are lost.</p>}
      {notices.map((one) => (
        <p key={one.id} className={`notice ${one.kind}`}>
          <span>{one.text}</span>
          <button className="plain" onClick={() => dismiss(one.id)} aria-label="Dismiss">
            <Icon name="close" />
          </button>
        </p>
      ))}
    </div>
  );
}
