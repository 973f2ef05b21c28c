/** Data that a panel loads from the server: the data, an error, and a reload. */

import { type DependencyList, useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "../api/http";
import { patchApp } from "../state/app";

export interface Loaded<T> {
  data: T | undefined;
  error: string;
  busy: boolean;
  reload: () => void;
  put: (data: T) => void; // data that another request returned
}

/** Other `deps` load other data. A change of `again` reloads; old data is kept meanwhile and on failure. */
export function useLoad<T>(load: () => Promise<T>, deps: DependencyList, again: unknown = null): Loaded<T> {
  const [state, set] = useState<{ data: T | undefined; error: string; busy: boolean }>({
    data: undefined,
    error: "",
    busy: true,
  });
  const latest = useRef(0);
  const read = useCallback(() => {
    const mine = ++latest.current;
    set((old) => ({ ...old, busy: true }));
    load().then(
      (data) => mine === latest.current && set({ data, error: "", busy: false }),
      (error: unknown) => {
        if (error instanceof ApiError && error.status === 401) patchApp({ me: null });
        if (mine === latest.current)
          set((old) => ({
            data: old.data,
            error: error instanceof Error ? error.message : String(error),
            busy: false,
          }));
      },
    );
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the linter checks `deps` where useLoad is called
  }, deps);
  useEffect(() => {
    set({ data: undefined, error: "", busy: true });
    read();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a counter, and its newest value is wanted
    return () => void ++latest.current;
  }, [read]);
  const before = useRef(again);
  useEffect(() => {
    if (before.current !== again) read();
    before.current = again;
  }, [again, read]);
  const put = useCallback((data: T) => set({ data, error: "", busy: false }), []);
  return { data: state.data, error: state.error, busy: state.busy, reload: read, put };
}

/** A counter that grows periodically while the page is visible, for changes without events. */
export function useEvery(ms: number): number {
  const [times, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && set((old) => old + 1), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return times;
}
