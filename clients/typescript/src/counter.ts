/**
 * Counter counts calls by name. It knows a bounded number of names: the one that was not
 * counted for longest makes room and would begin anew.
 */
export class Counter {
  /** evicted is how many names had to make room. */
  evicted = 0;
  private readonly counts = new Map<string, number>(); // the latest is last

  constructor(private readonly max: number) {}

  /** size is how many names are known. */
  get size(): number {
    return this.counts.size;
  }

  /** next returns the number of the next call; that of the latest if it is sent again. */
  next(name: string, again: boolean): number {
    const n = this.counts.get(name) ?? 0;
    return again && n > 0 ? n : n + 1;
  }

  /** set counts a call that {@link next} gave its number. */
  set(name: string, n: number): void {
    this.counts.delete(name);
    this.counts.set(name, n);
    if (this.counts.size > this.max) {
      this.counts.delete(this.counts.keys().next().value!);
      this.evicted++;
    }
  }
}
