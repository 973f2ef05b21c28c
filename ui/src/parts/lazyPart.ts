/** Parts of the page that are loaded when they are shown. A network that changes for a moment breaks none of them. */

import { type ComponentType, lazy, type LazyExoticComponent } from "react";

const PAUSE = 500; // milliseconds until a file is requested again

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE));

/** A component in a file of its own. If the file cannot be loaded, it is requested once more. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as React's own type of `lazy`
export function lazyPart<T extends ComponentType<any>>(load: () => Promise<{ default: T }>): LazyExoticComponent<T> {
  return lazy(() => load().catch(() => pause().then(load)));
}

/** Request a style sheet once more that could not be loaded. Its part is shown meanwhile. */
export function watchStyles(): void {
  addEventListener("vite:preloadError", (event) => {
    const address = /^Unable to preload CSS for (.+)$/.exec(event.payload.message)?.[1];
    if (!address) return; // a script, which `lazyPart` requests
    event.preventDefault();
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: address });
    void pause().then(() => document.head.append(link));
  });
}
