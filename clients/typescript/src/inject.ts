// The hints in the text of a body.

import { parseArray, parseObject, parseString, type Edit, type ObjectView } from "./json.js";
import type { Settings } from "./options.js";
import { formatTTL, type Values } from "./values.js";

/**
 * inject returns the text of a body with the hints in its nvext. Whatever else there is
 * stays as it is written; an nvext, agent_hints or annotations of another type is replaced.
 */
export function inject(body: ObjectView, v: Values, o: Settings): string {
  const ext = objectOr(body.get("nvext"));
  const edits: Edit[] = [["agent_hints", objectOr(ext.get("agent_hints")).edit(hints(v, o.carrier))]];
  if (o.carrier === "annotations") {
    edits.push(["annotations", annotations(ext.get("annotations"), v)]);
  } else if (o.carrier === "nat" && v.pin) {
    // Where the calls that follow are known, each of them asks anew.
    const ttl = formatTTL(v.left || v.totalRequests, v.iat);
    edits.push(["cache_control", `{"type":${JSON.stringify(o.cachePin)},"ttl":"${ttl}"}`]);
  }
  return body.edit([["nvext", ext.edit(edits)]]);
}

/** objectOr returns a view over an object, an empty one if text is none. */
function objectOr(text: string | undefined): ObjectView {
  return (text !== undefined && parseObject(text)) || parseObject("{}")!;
}

function hints(v: Values, carrier: Settings["carrier"]): Edit[] {
  const edits: Edit[] = [
    ["latency_sensitivity", `${v.latencySensitivity}.0`],
    ["osl", `${v.osl}`],
    ["priority", `${v.priority}`],
  ];
  if (carrier === "nat") {
    edits.push(
      ["prefix_id", JSON.stringify(v.prefixId)],
      ["total_requests", `${v.totalRequests}`],
      ["iat", `${v.iat}`],
    );
  }
  return edits;
}

/**
 * annotations returns the hints as annotations, among those of a list that is there: one
 * that says the same of another value is replaced where it stands, the others follow.
 */
function annotations(text: string | undefined, v: Values): string {
  const ours = new Map<string, string>([
    ["prefix_id", v.prefixId],
    ["total_requests", `${v.totalRequests}`],
    ["osl", `${v.osl}`],
    ["iat", `${v.iat}`],
  ]);
  const rest = new Map(ours);
  const write = (key: string) => JSON.stringify(`${key}:${ours.get(key)}`);
  const out: string[] = [];
  for (const element of (text !== undefined && parseArray(text)) || []) {
    const [key, value] = parseString(element)?.split(":", 2) ?? [];
    if (key === undefined || value === undefined || !ours.has(key)) out.push(element);
    else if (rest.delete(key)) out.push(write(key));
  }
  out.push(...Array.from(rest.keys(), write));
  return `[${out.join(",")}]`;
}
