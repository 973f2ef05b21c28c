/** The visibility of the list of threads, stored in this browser. */

const SIDEBAR = "wick-sidebar";

export const storedSidebar = (): boolean => localStorage.getItem(SIDEBAR) !== "hidden";

export const storeSidebar = (shown: boolean): void => localStorage.setItem(SIDEBAR, shown ? "shown" : "hidden");
