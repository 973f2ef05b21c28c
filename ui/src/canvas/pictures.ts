/** Pictures of the workspace that a document or a deck names: fetched as bytes, shown from memory. */

import { useEffect, useState } from "react";

import * as api from "../api";
import { pictureType } from "./kind";
import type { Place } from "./tabs";

/** Resolve an image of a document; empty for an external one. */
export function resolvePicture(document: string, name: string): string {
  if (/^[a-z][a-z0-9+.-]*:|^\/\//i.test(name)) return "";
  let path = name;
  try {
    path = decodeURI(name);
  } catch {
    // it is not written as an address, so it is taken as it is
  }
  const parts: string[] = path.startsWith("/") ? [] : document.split("/").slice(0, -1);
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return parts.join("/");
}

/** An address for the picture in this page; empty while it loads, null if it cannot be shown. */
export function usePicture(file: Place | null, name: string): string | null {
  const { agent, thread } = file ?? { agent: "", thread: "" };
  const path = file ? resolvePicture(file.path, name) : "";
  const type = pictureType(path);
  const [url, setUrl] = useState<string | null>("");
  useEffect(() => {
    if (!path || !type) return setUrl(null);
    let [gone, made] = [false, ""];
    void api.files.bytes(agent, path, thread).then(
      (bytes) => {
        if (gone) return;
        made = URL.createObjectURL(bytes.slice(0, bytes.size, type));
        setUrl(made);
      },
      () => gone || setUrl(null),
    );
    return () => {
      gone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [agent, thread, path, type]);
  return url;
}
