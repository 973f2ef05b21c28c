/** Something that is on or off. */

export function Switch({ label, on, change, disabled = false }: { label: string; on: boolean; change: (on: boolean) => void; disabled?: boolean }) {
  return <button type="button" role="switch" className="switch" aria-checked={on} aria-label={label} disabled={disabled} onClick={() => change(!on)} />;
}
