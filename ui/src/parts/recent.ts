/** Results that were made lately, so that they need not be made again; those that were not asked for the longest go first. */

export function cacheRecent<T>(make: (text: string) => T, most: number): (text: string) => T {
  const kept = new Map<string, T>();
  return (text) => {
    const found = kept.has(text) ? kept.get(text)! : make(text);
    kept.delete(text);
    kept.set(text, found); // a map keeps the order in which things were put
    if (kept.size > most) kept.delete(kept.keys().next().value!);
    return found;
  };
}
