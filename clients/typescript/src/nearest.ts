/**
 * nearest returns the one of known names that was probably meant by another; undefined if
 * there is none.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (name.length > 64) return undefined; // no slip of the pen
  const plain = (s: string) => s.toLowerCase().replace(/[-_]/g, "");
  let best: string | undefined;
  let least = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const k of known) {
    const d = distance(plain(name), plain(k));
    if (d < least && d < k.length) [best, least] = [k, d];
  }
  return best;
}

/** distance is the number of insertions, deletions and replacements that make b of a. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
