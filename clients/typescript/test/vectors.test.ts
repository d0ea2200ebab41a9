import assert from "node:assert/strict";
import { test } from "node:test";
import { formatTTL, HintContext, hinted, type Options } from "../src/index.js";
import { chatURL, post, readVectors, wire, type Vector } from "./wire.js";

const vectors = readVectors();

test("there are vectors", () => {
  assert.ok(vectors.ttl.length > 10 && vectors.inject.length > 100);
});

for (const v of vectors.ttl) {
  test(`ttl ${v.total} x ${v.iat}`, () => assert.equal(formatTTL(v.total, v.iat), v.want));
}

for (const v of vectors.inject) {
  test(v.name, async () => {
    const w = wire();
    const send = hinted({ ...optionsOf(v), fetch: w.fetch }).with(contextOf(v));
    for (let i = 0; i < v.calls_before; i++) await send(chatURL, post(v.body));
    await send(chatURL, post(v.body));
    assert.equal(w.last(), v.want);
    assert.equal(w.sent.length, v.calls_before + 1);
  });
}

function optionsOf({ options: o, prediction: p }: Vector): Options {
  const metrics = (n: number, sampleCount: number) => ({ sampleCount, mean: n, p50: n, p90: n, p95: n });
  return {
    totalRequests: o.total_requests,
    osl: o.osl,
    iat: o.iat,
    maxSensitivity: o.max_sensitivity,
    polarity: o.polarity,
    carrier: o.carrier,
    cachePin: o.cache_pin,
    cacheControl: o.cache_mode,
    compat: o.compat || null,
    lookup: p && {
      find: () => ({
        remainingCalls: metrics(p.remaining, p.remaining_samples),
        outputTokens: metrics(p.osl_p90, p.osl_samples),
        interarrivalMs: metrics(p.iat_mean, p.iat_samples),
        latencySensitivity: p.sensitivity,
      }),
    },
  };
}

function contextOf({ context: c }: Vector): HintContext {
  let context = HintContext.root.run(c.run);
  for (const name of c.path) context = context.enterFunction(name);
  for (const name of c.branch) context = context.branch(name);
  for (const level of c.sensitivity) context = context.withLatencySensitivity(level);
  if (c.output_tokens != null) context = context.withOutputTokens(c.output_tokens);
  if (c.remaining_calls != null) context = context.withRemainingCalls(c.remaining_calls);
  if (c.inter_arrival_ms != null) context = context.withInterArrival(c.inter_arrival_ms);
  return context.withPrefixId(c.prefix_id);
}
