/** A cache of recent results; the least recently used one is evicted first. */

export function cacheRecent<T>(make: (text: string) => T, most: number): (text: string) => T {
  const kept = new Map<string, T>();
  return (text) => {
    const found = kept.has(text) ? kept.get(text)! : make(text);
    kept.delete(text);
    kept.set(text, found); // a map preserves the insertion order
    if (kept.size > most) kept.delete(kept.keys().next().value!);
    return found;
  };
}
