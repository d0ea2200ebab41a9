// A prediction trie: what came after LLM calls of earlier runs, by where in the workflow
// they were made. Files are those of NeMo Agent Toolkit's profiler and of `stator trie`.

import { shortened } from "./names.js";

/** Metrics sum up samples. All are 0 where there were none. */
export interface Metrics {
  readonly sampleCount: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p95: number;
}

/** Prediction is what was seen of calls like one. */
export interface Prediction {
  /** remainingCalls is how many calls came after it in the run. */
  readonly remainingCalls: Metrics;
  /** interarrivalMs is how many milliseconds after its end the next call began. */
  readonly interarrivalMs: Metrics;
  /** outputTokens is how long the answers were. */
  readonly outputTokens: Metrics;
  /** latencySensitivity is how much a run waits for it; null where nobody computed it. */
  readonly latencySensitivity: number | null;
}

/** Lookup predicts. A {@link Trie} is one. */
export interface Lookup {
  /**
   * find returns the prediction for a call in the function that path leads to, which is
   * the callIndex-th in its invocation, from 1; nothing if there is none.
   */
  find(path: readonly string[], callIndex: number): Prediction | null | undefined;
  /** findPlain, if there is one, is used in place of find where values are NeMo Agent Toolkit's. */
  findPlain?(path: readonly string[], callIndex: number): Prediction | null | undefined;
}

interface Node {
  readonly byIndex: ReadonlyMap<number, Prediction>;
  readonly anyIndex: Prediction | undefined;
  readonly children: ReadonlyMap<string, Node>;
}

const maxDepth = 256;

/** Trie is a prediction trie. It never changes. */
export class Trie implements Lookup {
  private constructor(private readonly root: Node) {}

  /**
   * parse reads a file: its text, or what JSON.parse makes of it. It throws an Error that
   * names the member that is wrong and what was expected.
   */
  static parse(file: string | object): Trie {
    let value: unknown = file;
    if (typeof file === "string") {
      try {
        value = JSON.parse(file);
      } catch (e) {
        throw new Error("trie: expected JSON", { cause: e });
      }
    }
    const top = object(value, "the file");
    const version = top["version"];
    if (version != null && !(typeof version === "string" && /^1(\.|$)/.test(version))) {
      throw new Error(`trie: version: expected "1.0", got ${JSON.stringify(version)}`);
    }
    return new Trie(readNode(top["root"], "root", 0));
  }

  /**
   * find returns the prediction for a call. It goes down the whole path from the root, and
   * the deepest node that predicts something counts; within a node, the call's own index
   * goes before the aggregate. If a function is not there, it tries the last function and
   * its caller alone, which is how NeMo Agent Toolkit builds tries; calls of the entry
   * function are below a node called root there, and that goes first. If nothing of this is
   * there, what the path led to counts, or else the root.
   */
  find(path: readonly string[], callIndex: number): Prediction | undefined {
    const entry = path.length === 1 ? this.walk(["root", ...path], callIndex) : undefined;
    if (entry?.depth === 2) return entry.best;
    let whole = this.walk(path, callIndex);
    if (!whole.complete && path.length > 1 && path[0] === "root") {
      const below = this.walk(path.slice(1), callIndex);
      if (below.matched > 0 && below.matched >= whole.matched) whole = below;
    }
    if (whole.complete && whole.best) return whole.best;
    if (path.length > 2) {
      const pair = this.walk(path.slice(-2), callIndex);
      if (pair.complete && pair.depth > 0) return pair.best;
    }
    return whole.best;
  }

  /**
   * findPlain returns the prediction that NeMo Agent Toolkit finds: that of the deepest node
   * on the whole path from the root, as far as it is there.
   */
  findPlain(path: readonly string[], callIndex: number): Prediction | undefined {
    return this.walk(path, callIndex).best;
  }

  /** walk goes down by as many of the names as there are, to the deepest prediction. */
  private walk(names: readonly string[], callIndex: number) {
    let node = this.root;
    let best = pick(node, callIndex);
    let depth = 0;
    let matched = 0;
    for (const name of names) {
      const child = childOf(node, name);
      if (!child) break;
      node = child;
      matched++;
      const p = pick(node, callIndex);
      if (p) [best, depth] = [p, matched];
    }
    return { best, depth, matched, complete: matched === names.length };
  }
}

/** childOf returns the child with a name, which `stator trie build` may have shortened. */
function childOf(node: Node, name: string): Node | undefined {
  const child = node.children.get(name);
  if (child || node.children.size === 0) return child;
  const short = shortened(name);
  return short === undefined ? undefined : node.children.get(short);
}

function pick(node: Node, callIndex: number): Prediction | undefined {
  return node.byIndex.get(callIndex) ?? node.anyIndex;
}

function readNode(value: unknown, at: string, depth: number): Node {
  if (depth > maxDepth) throw new Error(`trie: ${at}: expected at most ${maxDepth} levels`);
  const node = object(value, at);
  if (typeof node["name"] !== "string") throw wrong(`${at}.name`, "a string", node["name"]);
  const byIndex = new Map<number, Prediction>();
  for (const [key, p] of members(node["predictions_by_call_index"], `${at}.predictions_by_call_index`)) {
    const where = `${at}.predictions_by_call_index.${key}`;
    if (!/^[1-9][0-9]{0,14}$/.test(key)) throw new Error(`trie: ${where}: expected a whole number of at least 1 as the name`);
    byIndex.set(Number(key), readPrediction(p, where));
  }
  const any = node["predictions_any_index"];
  const children = new Map<string, Node>();
  for (const [name, child] of members(node["children"], `${at}.children`)) {
    children.set(name, readNode(child, `${at}.children.${name}`, depth + 1));
  }
  return { byIndex, anyIndex: any == null ? undefined : readPrediction(any, `${at}.predictions_any_index`), children };
}

function readPrediction(value: unknown, at: string): Prediction {
  const p = object(value, at);
  const level = p["latency_sensitivity"] ?? null;
  if (level !== null && !Number.isSafeInteger(level)) throw wrong(`${at}.latency_sensitivity`, "a whole number or null", level);
  return {
    remainingCalls: readMetrics(p["remaining_calls"], `${at}.remaining_calls`),
    interarrivalMs: readMetrics(p["interarrival_ms"], `${at}.interarrival_ms`),
    outputTokens: readMetrics(p["output_tokens"], `${at}.output_tokens`),
    latencySensitivity: level as number | null,
  };
}

function readMetrics(value: unknown, at: string): Metrics {
  const m = object(value, at);
  const number = (name: string): number => {
    const v = m[name] ?? 0;
    if (typeof v !== "number" || !Number.isFinite(v)) throw wrong(`${at}.${name}`, "a number", v);
    return v;
  };
  return {
    sampleCount: number("sample_count"),
    mean: number("mean"),
    p50: number("p50"),
    p90: number("p90"),
    p95: number("p95"),
  };
}

function object(value: unknown, at: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrong(at, "an object", value);
  return value as Record<string, unknown>;
}

function members(value: unknown, at: string): [string, unknown][] {
  return value == null ? [] : Object.entries(object(value, at));
}

function wrong(at: string, expected: string, got: unknown): Error {
  const text = got === undefined ? "nothing" : JSON.stringify(got);
  return new Error(`trie: ${at}: expected ${expected}, got ${text.length > 40 ? text.slice(0, 40) + "…" : text}`);
}
