// What a wrapper is told when it is made.

import { nearest } from "./nearest.js";
import { shown } from "./shown.js";
import type { Lookup } from "./trie.js";

/** Level is a word for a number of tokens or milliseconds, in any case. */
export type Level = "LOW" | "MEDIUM" | "HIGH" | "low" | "medium" | "high";

/** Outgoing is what a matcher is shown of a request. */
export interface Outgoing {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
}

/** Problem is something that was wrong with the hints of a request, which went out anyway. */
export interface Problem {
  /**
   * kind is what it was about: `body`, which is no JSON object in a string, or must stay as
   * it is; `scope`, which was told what it cannot use and says nothing; `bounds`, a value
   * that was clamped; `lookup`, which threw; or `internal`, a fault of a matcher or of the
   * wrapper.
   */
  readonly kind: "body" | "scope" | "bounds" | "lookup" | "internal";
  readonly message: string;
  /** error is what was thrown, if anything was. */
  readonly error?: unknown;
}

/** Options change a wrapper from its defaults. */
export interface Options {
  /** fetch is what requests are sent with; the global one by default. */
  fetch?: typeof fetch;
  /** totalRequests is how many calls share a prefix, from 1 to 50; 10 by default. */
  totalRequests?: number;
  /** osl is how many tokens answers have; LOW, MEDIUM and HIGH are 128, 512 and 2048; 512 by default. */
  osl?: number | Level;
  /** iat is how many milliseconds are between calls; LOW, MEDIUM and HIGH are 50, 250 and 750; 250 by default. */
  iat?: number | Level;
  /**
   * polarity is which way priorities count: `direct`, the default, has higher ones more
   * urgent, as Stator and Dynamo since 1.1 do; `complement` is what NeMo Agent Toolkit sent
   * up to 1.7: maxSensitivity less the latency sensitivity.
   */
  polarity?: "direct" | "complement";
  /**
   * carrier is where the hints go: `nat`, the default, is agent_hints and cache_control;
   * `strict` leaves out what servers refuse that check every member; `annotations` is
   * strict with the rest as strings in annotations.
   */
  carrier?: "nat" | "strict" | "annotations";
  /** cachePin is how a prompt's blocks are to be kept; `ephemeral` by default, null not to ask. */
  cachePin?: "ephemeral" | null;
  /** cacheControl is which calls ask for that: `always`, the default, or the first of each prefix. */
  cacheControl?: "always" | "first_only";
  /** maxSensitivity is the highest latency sensitivity; 1000 by default. */
  maxSensitivity?: number;
  /** lookup is where predictions come from, which replace the static values. */
  lookup?: Lookup | null;
  /** match is which requests get hints; {@link matchLLM} by default. */
  match?: (request: Outgoing) => boolean;
  /** maxPrefixes is how many prefixes calls are counted for at a time; 16384 by default. */
  maxPrefixes?: number;
  /** compat is whose values are sent where those of this package differ. */
  compat?: "nat-1.5" | "nat-1.8" | null;
  /** failClosed has a call rejected whose hints are out of bounds, instead of clamping them. */
  failClosed?: boolean;
  /** onProblem hears of what was wrong. What it throws is ignored. */
  onProblem?: (problem: Problem) => void;
}

/** Settings are options that were checked, with the defaults. */
export interface Settings {
  readonly totalRequests: number;
  readonly osl: number;
  readonly iat: number;
  readonly polarity: "direct" | "complement";
  readonly carrier: "nat" | "strict" | "annotations";
  readonly cachePin: "ephemeral" | null;
  readonly cacheControl: "always" | "first_only";
  readonly maxSensitivity: number;
  readonly lookup: Lookup | null;
  readonly match: (request: Outgoing) => boolean;
  readonly maxPrefixes: number;
  readonly compat: "nat-1.5" | "nat-1.8" | null;
  readonly failClosed: boolean;
}

/** maxCount and maxOsl are the largest values that are sent: what servers' fields hold. */
export const maxCount = 2 ** 31 - 1;
export const maxOsl = 2 ** 32 - 1;

/** known has the name of every option. */
const known: Record<keyof Options, true> = {
  fetch: true,
  totalRequests: true,
  osl: true,
  iat: true,
  polarity: true,
  carrier: true,
  cachePin: true,
  cacheControl: true,
  maxSensitivity: true,
  lookup: true,
  match: true,
  maxPrefixes: true,
  compat: true,
  failClosed: true,
  onProblem: true,
};

/** settle checks options. It throws a TypeError that names the one that is wrong. */
export function settle(o: Options): Settings {
  if (typeof o !== "object" || o === null) throw new TypeError(`options: expected an object, got ${shown(o)}`);
  for (const name of Object.keys(o)) {
    if (!Object.hasOwn(known, name)) throw unknown(name);
  }
  for (const name of ["fetch", "match", "onProblem"] as const) {
    if (o[name] != null && typeof o[name] !== "function") throw wrong(name, "a function", o[name]);
  }
  if (o.failClosed != null && typeof o.failClosed !== "boolean") throw wrong("failClosed", "true or false", o.failClosed);
  if (o.lookup != null && typeof o.lookup.find !== "function") throw wrong("lookup", "something with a function find", o.lookup);
  return {
    totalRequests: whole("totalRequests", o.totalRequests ?? 10, 50),
    osl: whole("osl", levelOf(o.osl, 128, 512, 2048) ?? 512, maxOsl),
    iat: whole("iat", levelOf(o.iat, 50, 250, 750) ?? 250, maxCount),
    polarity: oneOf("polarity", o.polarity ?? "direct", ["direct", "complement"]),
    carrier: oneOf("carrier", o.carrier ?? "nat", ["nat", "strict", "annotations"]),
    cachePin: oneOf("cachePin", o.cachePin === undefined ? "ephemeral" : o.cachePin, ["ephemeral", null]),
    cacheControl: oneOf("cacheControl", o.cacheControl ?? "always", ["always", "first_only"]),
    maxSensitivity: whole("maxSensitivity", o.maxSensitivity ?? 1000, maxCount),
    lookup: o.lookup ?? null,
    match: o.match ?? matchLLM,
    maxPrefixes: whole("maxPrefixes", o.maxPrefixes ?? 16384, 2 ** 24),
    compat: oneOf("compat", o.compat ?? null, ["nat-1.5", "nat-1.8", null]),
    failClosed: o.failClosed ?? false,
  };
}

function levelOf(v: number | string | undefined, low: number, medium: number, high: number): number | string | undefined {
  switch (typeof v === "string" ? v.toUpperCase() : "") {
    case "LOW":
      return low;
    case "MEDIUM":
      return medium;
    case "HIGH":
      return high;
  }
  return v;
}

function whole(name: string, v: unknown, high: number): number {
  if (typeof v === "number" && Number.isInteger(v) && v >= 1 && v <= high) return v;
  throw wrong(name, `a whole number from 1 to ${high}`, v);
}

function oneOf<T>(name: string, v: T, choices: readonly T[]): T {
  if (choices.includes(v)) return v;
  throw wrong(name, `one of ${choices.map(String).join(", ")}`, v);
}

function wrong(name: string, expected: string, got: unknown): TypeError {
  return new TypeError(`${name}: expected ${expected}, got ${shown(got)}`);
}

function unknown(name: string): TypeError {
  const names = Object.keys(known);
  const near = nearest(name, names);
  const help = near ? `did you mean ${near}?` : `there are ${names.join(", ")}`;
  return new TypeError(`${name.slice(0, 80)}: unknown option; ${help}`);
}

/**
 * matchLLM matches calls of a model: a POST of JSON, or of nobody says what, to a path that
 * ends in /chat/completions, /completions, /responses or /messages, and not to a thread.
 */
export function matchLLM(request: Outgoing): boolean {
  if (!matchAll(request)) return false;
  const path = request.url.replace(/[?#].*$/s, "").replace(/^(?:[a-z][a-z0-9+.-]*:)?\/\/[^/]*/i, "");
  if (!/\/(?:completions|responses|messages)$/.test(path)) return false;
  if (path.endsWith("/messages") && path.includes("/threads/")) return false; // adds one to a thread
  const type = request.headers.get("content-type")?.split(";")[0]!.trim().toLowerCase();
  return !type || type === "application/json" || type.endsWith("+json");
}

/** matchAll matches every POST, as NeMo Agent Toolkit does, embeddings included. */
export function matchAll(request: Outgoing): boolean {
  return request.method === "POST";
}
