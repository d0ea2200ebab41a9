// What is said of one call.

import { maxCount, maxOsl, type Settings } from "./options.js";
import type { HintContext } from "./scope.js";
import { sha256 } from "./sha256.js";
import type { Metrics, Prediction } from "./trie.js";

/** Values are the hints of one call. */
export interface Values {
  prefixId: string;
  latencySensitivity: number;
  priority: number;
  osl: number;
  totalRequests: number;
  iat: number;
  /** left is the call and those that follow, 0 if only the total is known. */
  left: number;
  /** pin is whether the prompt's blocks are to be kept. */
  pin: boolean;
}

/** HintError is what a call is rejected with under failClosed. Nothing was sent. */
export class HintError extends Error {
  override readonly name = "HintError";
}

const defaultSensitivity = 2;

/**
 * decide works out what to say of the index-th call with a prefix, with what is predicted
 * for it, if anything; what the context says goes before that. What is out of bounds is
 * clamped, and bounds hears of it.
 */
export function decide(
  o: Settings,
  context: HintContext,
  prefixId: string,
  index: number,
  p: Prediction | null | undefined,
  bounds: (message: string) => void,
): Values {
  const v: Values = {
    prefixId,
    latencySensitivity: sensitivity(o, context, p),
    priority: 0,
    osl: o.osl,
    totalRequests: o.totalRequests,
    iat: o.iat,
    left: 0,
    pin: false,
  };
  const before = context.stray ? 0 : index - 1;
  if (p && o.compat) predictAsNAT(o, v, p);
  else if (p) predict(v, p, before);
  if (context.outputTokens > 0) v.osl = context.outputTokens;
  if (context.interArrivalMs > 0) v.iat = Math.max(Math.round(context.interArrivalMs), 1);
  if (context.remainingCalls >= 0) remain(v, context.remainingCalls, before);
  // After the last call there is nothing to keep.
  v.pin = v.left !== 1 && o.cachePin !== null && (o.cacheControl === "always" || index === 1);
  v.totalRequests = clamp("total_requests", v.totalRequests, 1, maxCount, bounds);
  v.osl = clamp("osl", v.osl, 1, maxOsl, bounds);
  v.iat = clamp("iat", v.iat, 1, maxCount, bounds);
  v.latencySensitivity = clamp("latency_sensitivity", v.latencySensitivity, 0, o.maxSensitivity, bounds);
  v.priority = o.polarity === "direct" ? v.latencySensitivity : o.maxSensitivity - v.latencySensitivity;
  return v;
}

function sensitivity(o: Settings, context: HintContext, p: Prediction | null | undefined): number {
  const predicted = p?.latencySensitivity;
  if (context.level >= 1) return o.compat ? Math.max(context.level, defaultSensitivity) : context.level;
  return typeof predicted === "number" && Number.isFinite(predicted) ? Math.round(predicted) : defaultSensitivity;
}

/**
 * remain makes of the calls that follow, and those that were before, the number of all with
 * the prefix. On the last one that is 1.
 */
function remain(v: Values, n: number, before: number): void {
  v.left = 1 + Math.min(n, maxCount);
  v.totalRequests = n === 0 ? 1 : before + v.left;
}

/**
 * predict takes a prediction over. Each of its parts counts for itself: one that was
 * measured and one that says something.
 */
function predict(v: Values, p: Prediction, before: number): void {
  const remaining = rounded(p.remainingCalls.mean);
  if (says(remaining, p.remainingCalls)) remain(v, remaining, before);
  const osl = rounded(p.outputTokens.p90);
  if (osl !== undefined && osl > 0) v.osl = osl;
  const iat = rounded(p.interarrivalMs.mean);
  if (says(iat, p.interarrivalMs)) v.iat = Math.max(iat, 1);
}

/** rounded returns a prediction as a whole number; undefined if it makes no sense. */
function rounded(n: number): number | undefined {
  return n >= 0 && n <= maxCount ? Math.round(n) : undefined;
}

function says(n: number | undefined, m: Metrics): n is number {
  return n !== undefined && (n > 0 || m.sampleCount > 0);
}

/**
 * predictAsNAT takes a prediction over as NeMo Agent Toolkit does: the remaining calls
 * stand for all, and fractions are cut off. A prediction of nothing is out of bounds in
 * 1.5 and gives way to the static value in 1.8.
 */
function predictAsNAT(o: Settings, v: Values, p: Prediction): void {
  const parts = [
    ["totalRequests", p.remainingCalls.mean],
    ["osl", p.outputTokens.p90],
    ["iat", p.interarrivalMs.mean],
  ] as const;
  for (const [name, from] of parts) {
    if (!Number.isFinite(from)) return;
    const n = Math.trunc(Math.max(Math.min(from, maxCount), -maxCount));
    if (n >= 1 || o.compat === "nat-1.5") v[name] = n;
  }
}

function clamp(name: string, n: number, low: number, high: number, bounds: (message: string) => void): number {
  if (n >= low && n <= high) return n;
  const most = name === "latency_sensitivity" ? "max_sensitivity " : "";
  bounds(n < low ? `${name} ${n} must be >= ${low}` : `${name} ${n} exceeds ${most}${high}`);
  return Math.min(Math.max(n, low), high);
}

/**
 * formatTTL returns how long to keep a prompt's blocks, as cache_control takes it: the
 * time that so many calls should take, as whole minutes or else as seconds, rounded up.
 */
export function formatTTL(calls: number, iat: number): string {
  const ms = BigInt(calls) * BigInt(iat);
  let s = (ms + 999n) / 1000n;
  if (s < 1n) s = 1n;
  if (s > maxSeconds) s = maxSeconds;
  return s >= 60n && s % 60n === 0n ? `${s / 60n}m` : `${s}s`;
}

/** maxSeconds is the longest time that a server written in Go can tell from a longer one. */
const maxSeconds = (2n ** 63n - 1n) / 1_000_000_000n;

/**
 * shortId returns an id that servers take. One that is longer than 256 bytes keeps its
 * beginning, and the whole of it decides about the end.
 */
export function shortId(id: string): string {
  const max = 256;
  const hash = 16;
  if (id.length * 3 <= max) return id;
  const bytes = new TextEncoder().encode(id);
  if (bytes.length <= max) return id;
  let end = max - 1 - hash;
  while ((bytes[end]! & 0xc0) === 0x80) end--; // not inside of a character
  return new TextDecoder().decode(bytes.subarray(0, end)) + "~" + sha256(id).slice(0, hash);
}
