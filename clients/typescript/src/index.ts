/**
 * A fetch that tells a fleet of LLM engines what an agent is about to do: which calls share
 * a prompt, how many there will be, how long answers are, and how urgent they are. The
 * hints go into the `nvext` member of OpenAI-style requests; everything else, and every
 * answer, passes as it is.
 *
 * @module
 */

import { Counter } from "./counter.js";
import { inject } from "./inject.js";
import { parseObject } from "./json.js";
import { settle, type Options, type Outgoing, type Problem } from "./options.js";
import { randomHex } from "./random.js";
import { current, type HintContext } from "./scope.js";
import { shown } from "./shown.js";
import type { Prediction } from "./trie.js";
import { decide, HintError, shortId } from "./values.js";

export { matchAll, matchLLM, type Level, type Options, type Outgoing, type Problem } from "./options.js";
export { branch, current, enterFunction, HintContext, ready, run } from "./scope.js";
export { withInterArrival, withLatencySensitivity, withOutputTokens, withPrefixId, withRemainingCalls } from "./scope.js";
export { Trie, type Lookup, type Metrics, type Prediction } from "./trie.js";
export { formatTTL, HintError } from "./values.js";

/** Stats say what became of requests so far. */
export interface Stats {
  /** hinted went out with hints. */
  hinted: number;
  /** unmatched were not for hints. */
  unmatched: number;
  /** untouched matched and went out as they came: their body is no JSON object in a string, or must stay as it is, or something failed. */
  untouched: number;
  /** retried were sent before; they are among the hinted. */
  retried: number;
  /** withoutRun belonged to no run and had no prefix id of their own; they share one. */
  withoutRun: number;
  /** predicted got a prediction, unpredicted were looked up without one. */
  predicted: number;
  unpredicted: number;
  /** problems are those that onProblem was told of. */
  problems: number;
  /** prefixes are counted now; evicted ones had to make room. */
  prefixes: number;
  evicted: number;
}

/** HintedFetch is a fetch that adds hints. */
export type HintedFetch = typeof fetch & {
  /** with returns a fetch whose calls are in a context, whatever scopes there are. */
  with(context: HintContext): typeof fetch;
  /** stats returns what became of requests so far. */
  stats(): Stats;
};

/**
 * hinted returns a fetch that adds hints to calls of models. Give it to an SDK as its
 * `fetch`. Only bodies that are strings get hints: a Request's own body, a Blob, a form or
 * a stream passes as it is, and so does every body that a header holds a digest or a
 * signature of. It throws a TypeError for an option that is wrong; after that, nothing
 * about hints fails a request, unless failClosed says so.
 */
export function hinted(options: Options = {}): HintedFetch {
  const wrapper = new Wrapper(options);
  const bound =
    (context?: HintContext): typeof fetch =>
    (input, init) =>
      wrapper.fetch(context ?? current(), input, init);
  return Object.assign(bound(), { with: bound, stats: () => wrapper.stats() });
}

type Input = Parameters<typeof fetch>[0];

class Wrapper {
  private readonly settings;
  private readonly prefixes;
  private readonly functions;
  private readonly stray = randomHex(8);
  private readonly counts = { hinted: 0, unmatched: 0, untouched: 0, retried: 0, withoutRun: 0, predicted: 0, unpredicted: 0, problems: 0 };

  constructor(private readonly options: Options) {
    this.settings = settle(options);
    this.prefixes = new Counter(this.settings.maxPrefixes);
    this.functions = new Counter(this.settings.maxPrefixes);
  }

  fetch(context: HintContext, input: Input, init: RequestInit | undefined): Promise<Response> {
    let sent = init;
    try {
      sent = this.prepare(context, input, init);
    } catch (error) {
      if (error instanceof HintError) return Promise.reject(error);
      this.counts.untouched++;
      this.problem({ kind: "internal", message: "the request went out without hints", error });
    }
    return (this.options.fetch ?? globalThis.fetch)(input, sent);
  }

  stats(): Stats {
    return { ...this.counts, prefixes: this.prefixes.size, evicted: this.prefixes.evicted };
  }

  /** prepare returns what to send in place of init. It throws a HintError under failClosed. */
  private prepare(context: HintContext, input: Input, init: RequestInit | undefined): RequestInit | undefined {
    const request = outgoing(input, init);
    if (!this.settings.match(request)) {
      this.counts.unmatched++;
      return init;
    }
    const seal = sealedBy(request.headers);
    const object = !seal && typeof init?.body === "string" ? parseObject(init.body) : undefined;
    if (!object) {
      this.counts.untouched++;
      const message = seal ? `the body must stay as it is: the request has ${seal}` : "the body is no JSON object in a string";
      this.problem({ kind: "body", message });
      return init;
    }
    for (const message of Object.values(context.faults)) this.problem({ kind: "scope", message });
    const text = inject(object, this.values(context, retried(request)), this.settings);
    this.counts.hinted++;
    return withBody(init!, request.headers, text);
  }

  /** values works out what to say of a call and counts it. */
  private values(context: HintContext, again: boolean) {
    const o = this.settings;
    const prefix = shortId(context.prefixId(this.stray));
    const index = this.prefixes.next(prefix, again);
    // A trie counts by invocation, NeMo Agent Toolkit looks up by prefix.
    const invocation = context.invocation ? `f:${context.invocation}` : context.runId ? `r:${context.runId}` : `p:${prefix}`;
    const call = o.compat ? index : this.functions.next(invocation, again);
    const v = decide(o, context, prefix, index, this.predict(context, call), (message) => {
      if (o.failClosed) throw new HintError(message);
      this.problem({ kind: "bounds", message });
    });
    this.prefixes.set(prefix, index);
    if (!o.compat && o.lookup) this.functions.set(invocation, call);
    if (context.stray) this.counts.withoutRun++;
    if (again) this.counts.retried++;
    return v;
  }

  private predict(context: HintContext, call: number): Prediction | null | undefined {
    const { lookup } = this.settings;
    if (!lookup) return undefined;
    try {
      const p = this.settings.compat && lookup.findPlain ? lookup.findPlain(context.path, call) : lookup.find(context.path, call);
      if (p) check(p);
      this.counts[p ? "predicted" : "unpredicted"]++;
      return p;
    } catch (error) {
      this.problem({ kind: "lookup", message: "the lookup of a prediction failed", error });
      return undefined;
    }
  }

  private problem(p: Problem): void {
    this.counts.problems++;
    try {
      this.options.onProblem?.(p);
    } catch {
      // Whoever listens must not fail a call.
    }
  }
}

/** check throws if what a lookup returned is no prediction. */
function check(p: Prediction): void {
  for (const name of ["remainingCalls", "outputTokens", "interarrivalMs"] as const) {
    const m = p[name];
    if (typeof m?.sampleCount !== "number" || typeof m.mean !== "number" || typeof m.p90 !== "number") {
      throw new TypeError(`${name}: expected sampleCount, mean and p90, got ${shown(m)}`);
    }
  }
}

function outgoing(input: Input, init: RequestInit | undefined): Outgoing {
  const request = typeof input === "object" && "url" in input ? input : undefined;
  return {
    url: request ? request.url : String(input),
    method: (init?.method ?? request?.method ?? "GET").toUpperCase(),
    headers: new Headers(init?.headers ?? request?.headers),
  };
}

/** retried reports whether an SDK of OpenAI or Anthropic sent the call before. */
function retried(request: Outgoing): boolean {
  const n = request.headers.get("x-stainless-retry-count");
  return n !== null && n !== "" && n !== "0";
}

/** sealing are headers that hold for the bytes of the body alone. */
const sealing = ["Content-MD5", "Digest", "Content-Digest", "X-Amz-Content-Sha256", "Signature"];

/** sealedBy names the header because of which a body must not change, or is compressed. */
function sealedBy(headers: Headers): string | undefined {
  const encoding = headers.get("Content-Encoding");
  if (encoding && encoding !== "identity") return "Content-Encoding";
  if (headers.get("Authorization")?.startsWith("AWS4-")) return "Authorization: AWS4"; // a signature of the body, too
  return sealing.find((name) => headers.has(name));
}

/** withBody returns init with another body. A length that was set would be wrong. */
function withBody(init: RequestInit, headers: Headers, body: string): RequestInit {
  if (!headers.has("content-length")) return { ...init, body };
  headers.delete("content-length");
  return { ...init, headers, body };
}
