/** True where messages are shown without the rest of the page: no canvas, and no requests about a call. */

import { createContext } from "react";

export const ReadOnly = createContext(false);
