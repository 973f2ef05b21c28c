/** A gauge of a budget: used, reserved and remaining. */
import { joinClasses } from "./classes";
import styles from "./controls.module.css";

interface Props {
  label: string;
  used: number;
  reserved?: number;
  most: number;
  show: (amount: number) => string;
}

export function Gauge({ label, used, reserved = 0, most, show }: Props) {
  const part = (amount: number) => `${Math.min(100, Math.max(0, (amount / most) * 100))}%`;
  const near = used + reserved >= most * 0.9;
  const aside = reserved > 0 ? `, ${show(reserved)} reserved` : "";
  const says = `${show(used)} of ${show(most)}${aside}`;
  return (
    <div className={styles.gauge}>
      <span>{label}</span> <small>{says}</small>
      <div
        className={joinClasses(styles.bar, near && styles.near)}
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={most}
        aria-valuenow={Math.min(used, most)}
        aria-valuetext={says}
      >
        <i className={styles.used} style={{ width: part(used) }} />
        <i className={styles.reserved} style={{ width: part(Math.min(reserved, Math.max(0, most - used))) }} />
      </div>
    </div>
  );
}
