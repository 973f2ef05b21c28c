/** Pictures: one that a text names, and one that is a file of its own. */

import { useEffect, useState } from "react";

import { usePicture } from "./pictures";
import type { Place, Tab } from "./tabs";
import { joinClasses } from "../parts/classes";
import styles from "./canvas.module.css";

export function Named({ file, name, words }: { file: Place | null; name: string; words: string }) {
  const url = usePicture(file, name);
  if (url === null)
    return (
      <p className={styles.noPicture}>
        <em>{words || name}</em> <small>(image {name} not found in the workspace)</small>
      </p>
    );
  return url ? (
    <img src={url} alt={words} />
  ) : (
    <p className="waiting" role="status">
      Loading {name}…
    </p>
  );
}

export default function Picture({ tab }: { tab: Tab }) {
  const url = useBytes(tab.bytes);
  const [whole, setWhole] = useState(true);
  const [size, setSize] = useState("");
  const [broken, setBroken] = useState(false);
  useEffect(() => setBroken(false), [url]);
  if (broken)
    return (
      <p className="empty" role="alert">
        {tab.name} is not a picture that a browser can show. Download it to open it elsewhere.
      </p>
    );
  return (
    <div className={styles.picture}>
      <div className={styles.viewTools}>
        <button aria-pressed={!whole} onClick={() => setWhole(!whole)}>
          {whole ? "Actual size" : "Fit"}
        </button>
        <small>{size}</small>
      </div>
      <div
        className={joinClasses(styles.picturePlace, whole && styles.whole)}
        tabIndex={0}
        role="group"
        aria-label={tab.name}
      >
        {url && (
          <img
            src={url}
            alt={tab.name}
            onError={() => setBroken(true)}
            onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) =>
              setSize(`${naturalWidth} × ${naturalHeight}`)
            }
          />
        )}
      </div>
    </div>
  );
}

/** An address for bytes, as long as they are shown. */
export function useBytes(bytes: Blob | null): string {
  const [url, setUrl] = useState("");
  useEffect(() => {
    if (!bytes) return setUrl("");
    const made = URL.createObjectURL(bytes);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes]);
  return url;
}
