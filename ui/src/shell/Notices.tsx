import { dismiss, useApp } from "../state/app";
import { Icon } from "./Icon";
import styles from "./shell.module.css";

export function Notices() {
  const notices = useApp((state) => state.notices);
  const online = useApp((state) => state.online);
  return (
    <div className={styles.notices} role="status" aria-live="polite">
      {!online && (
        <p className={styles.notice} data-kind="error">
          Connection lost. Reconnecting; no messages are lost.
        </p>
      )}
      {notices.map((one) => (
        <p key={one.id} className={styles.notice} data-kind={one.kind}>
          <span>{one.text}</span>
          <button className="plain" onClick={() => dismiss(one.id)} aria-label="Dismiss">
            <Icon name="close" />
          </button>
        </p>
      ))}
    </div>
  );
}
