/** shown returns a value as messages have it: short, and without calling anything of it. */
export function shown(v: unknown): string {
  switch (typeof v) {
    case "string":
      return JSON.stringify(v.length > 40 ? v.slice(0, 40) + "…" : v);
    case "number":
    case "bigint":
    case "boolean":
    case "undefined":
      return String(v);
    case "object":
      return v === null ? "null" : Array.isArray(v) ? "an array" : "an object";
  }
  return `a ${typeof v}`;
}
