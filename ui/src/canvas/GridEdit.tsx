/** The field of a cell that is written into. */

import { type KeyboardEvent, useRef, useState } from "react";

interface Props {
  text: string;
  done: (text: string) => void;
  cancel: () => void;
  next: () => void;
  down: () => void;
}

export function GridEdit({ text, done, cancel, next, down }: Props) {
  const [value, setValue] = useState(text);
  const over = useRef(false);
  const finish = (act: () => void) => {
    over.current = true;
    act();
  };
  const press = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") return finish(() => done(value)); // and it is saved
    event.stopPropagation();
    if (event.key === "Escape") finish(cancel);
    else if (event.key === "Enter" || event.key === "Tab")
      finish(() => {
        done(value);
        (event.key === "Tab" ? next : down)();
      });
    else return;
    event.preventDefault();
  };
  return (
    <input
      aria-label="Value"
      autoFocus
      value={value}
      onChange={(event) => setValue(event.target.value)}
      onKeyDown={press}
      onBlur={() => over.current || done(value)}
    />
  );
}
