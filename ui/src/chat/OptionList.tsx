/** The choices above the message field: skills after a slash, files and threads after an `@`. */

import styles from "./chat.module.css";

export interface Option {
  key: string;
  name: string;
  detail: string;
}

interface Props {
  label: string;
  options: Option[];
  chosen: number;
  choose: (at: number) => void;
  take: (at: number) => void;
}

export function OptionList({ label, options, chosen, choose, take }: Props) {
  return (
    <ul className={styles.slash} id="slash" role="listbox" aria-label={label} tabIndex={0}>
      {options.map(({ key, name, detail }, at) => (
        <li
          key={key}
          id={`slash-${at}`}
          role="option"
          aria-selected={at === chosen}
          ref={at === chosen ? scrollIntoList : undefined}
          onMouseMove={() => choose(at)}
          onMouseDown={(event) => {
            event.preventDefault();
            take(at);
          }}
        >
          <b>{name}</b> <small>{detail}</small>
        </li>
      ))}
    </ul>
  );
}

const scrollIntoList = (row: HTMLElement | null): void => row?.scrollIntoView?.({ block: "nearest" });
