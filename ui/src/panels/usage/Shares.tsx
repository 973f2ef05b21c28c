/** The usage of each one, as bars beside the names. */
import styles from "./usage.module.css";

export function Shares({
  title,
  rows,
  show,
}: {
  title: string;
  rows: [string, number][];
  show: (amount: number) => string;
}) {
  const most = rows[0]?.[1];
  if (!most) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul className={styles.shares}>
        {rows.map(([name, amount]) => (
          <li key={name}>
            <span>{name || "unnamed"}</span>
            <b>{show(amount)}</b>
            <i style={{ width: `${(amount / most) * 100}%` }} aria-hidden="true" />
          </li>
        ))}
      </ul>
    </section>
  );
}
