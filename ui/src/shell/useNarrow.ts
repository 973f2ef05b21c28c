import { useSyncExternalStore } from "react";

import { isNarrow, watchNarrow } from "../state/layout";

/** True while the page has room for one panel at a time. */
export const useNarrow = (): boolean => useSyncExternalStore(watchNarrow, isNarrow);
