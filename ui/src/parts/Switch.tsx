/** Something that is on or off. */

export function Switch({ label, on, change }: { label: string; on: boolean; change: (on: boolean) => void }) {
  return <button type="button" role="switch" className="switch" aria-checked={on} aria-label={label} onClick={() => change(!on)} />;
}
