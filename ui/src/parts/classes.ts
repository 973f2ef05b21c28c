/** Return the names of an element's classes as one attribute; a falsy one is left out. */
export const joinClasses = (...names: (string | false | undefined)[]): string => names.filter(Boolean).join(" ");
