/** Whether the list of threads is shown, as this browser remembers it. */

const SIDEBAR = "wick-sidebar";

export const storedSidebar = (): boolean => localStorage.getItem(SIDEBAR) !== "hidden";

export const storeSidebar = (shown: boolean): void => localStorage.setItem(SIDEBAR, shown ? "shown" : "hidden");
