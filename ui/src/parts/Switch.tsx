/** Something that is on or off; with a reason why not, it stays as it is. */
import styles from "./controls.module.css";

export function Switch({
  label,
  on,
  change,
  refused = "",
}: {
  label: string;
  on: boolean;
  change: (on: boolean) => void;
  refused?: string;
}) {
  const press = refused ? undefined : () => change(!on);
  return (
    <button
      type="button"
      role="switch"
      className={styles.switch}
      aria-checked={on}
      aria-label={label}
      aria-disabled={refused !== ""}
      aria-description={refused || undefined}
      title={refused || undefined}
      onClick={press}
    />
  );
}
