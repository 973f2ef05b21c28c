/** The colours of the page: dark or light, as the user or the system wants them. */

import { useSyncExternalStore } from "react";

import { useApp } from "../state/app";

const QUERY = "(prefers-color-scheme: dark)";

const watchSystem = (changed: () => void) => {
  const found = matchMedia(QUERY);
  found.addEventListener("change", changed);
  return () => found.removeEventListener("change", changed);
};

export function useDark(): boolean {
  const theme = useApp((state) => state.theme);
  const system = useSyncExternalStore(watchSystem, () => matchMedia(QUERY).matches);
  return theme === "system" ? system : theme === "dark";
}
