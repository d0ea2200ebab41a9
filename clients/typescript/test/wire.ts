// What the tests have in common.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Options, Prediction } from "../src/index.js";

/** root is the directory of the repository. */
export const root = process.env["STATOR_ROOT"] ?? join(import.meta.dirname ?? ".", "../../..");

export const chatURL = "http://engine/v1/chat/completions";

/** Sent is what reached the wire. */
export interface Sent {
  input: Parameters<typeof fetch>[0];
  init: RequestInit | undefined;
}

/** wire returns a fetch that remembers what was sent and answers with nothing. */
export function wire(): { sent: Sent[]; fetch: typeof fetch; last(): string } {
  const sent: Sent[] = [];
  return {
    sent,
    fetch: async (input, init) => {
      sent.push({ input, init });
      return new Response("{}");
    },
    last: () => String(sent[sent.length - 1]!.init!.body),
  };
}

/** post is how an SDK sends a body. */
export function post(body: string, headers: Record<string, string> = {}): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json", ...headers }, body };
}

/** hintsOf returns the agent_hints of a body. */
export function hintsOf(body: string): Record<string, unknown> {
  return (JSON.parse(body) as { nvext: { agent_hints: Record<string, unknown> } }).nvext.agent_hints;
}

/** predicts returns the prediction of remaining calls, tokens and milliseconds. */
export function predicts(remaining: number, osl: number, iat: number, level: number | null = null): Prediction {
  const metrics = (n: number) => ({ sampleCount: 3, mean: n, p50: n, p90: n, p95: n });
  return { remainingCalls: metrics(remaining), outputTokens: metrics(osl), interarrivalMs: metrics(iat), latencySensitivity: level };
}

/** Vector is one of those that the Go client runs as well. */
export interface Vector {
  name: string;
  options: {
    total_requests: number;
    osl: number;
    iat: number;
    max_sensitivity: number;
    polarity: NonNullable<Options["polarity"]>;
    carrier: NonNullable<Options["carrier"]>;
    cache_pin: "ephemeral" | null;
    cache_mode: NonNullable<Options["cacheControl"]>;
    compat: "" | "nat-1.5" | "nat-1.8";
  };
  context: {
    run: string;
    path: string[];
    prefix_id: string;
    sensitivity: number[];
    branch: string[];
    output_tokens?: number;
    remaining_calls?: number | null;
    inter_arrival_ms?: number;
  };
  prediction: {
    remaining: number;
    remaining_samples: number;
    osl_p90: number;
    osl_samples: number;
    iat_mean: number;
    iat_samples: number;
    sensitivity: number | null;
  } | null;
  calls_before: number;
  body: string;
  want: string;
}

export interface Vectors {
  ttl: { total: number; iat: number; want: string }[];
  inject: Vector[];
}

export function readVectors(): Vectors {
  return JSON.parse(readFileSync(join(root, "hints/testdata/vectors.json"), "utf8")) as Vectors;
}
