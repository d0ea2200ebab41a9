import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { enterFunction, hinted, run, Trie } from "../src/index.js";
import { chatURL, hintsOf, post, root, wire } from "./wire.js";

const metrics = (n: number) => ({ sample_count: 2, mean: n, p50: n, p90: n, p95: n });
const prediction = (n: number) => ({
  remaining_calls: metrics(n),
  interarrival_ms: metrics(500),
  output_tokens: metrics(200),
  latency_sensitivity: null,
});
const node = (name: string, any: number | null, indices: Record<string, number> = {}, ...children: { name: string }[]) => ({
  name,
  predictions_by_call_index: Object.fromEntries(Object.entries(indices).map(([i, n]) => [i, prediction(n)])),
  predictions_any_index: any === null ? null : prediction(any),
  children: Object.fromEntries(children.map((c) => [c.name, c])),
});
const file = (root: object) => ({ version: "1.0", generated_at: "2026-03-01T12:00:00.123456+00:00", workflow_name: "demo", root });

const sample = file(
  node(
    "root",
    1,
    { "1": 11 },
    node("wf", 2, { "1": 12 }, node("agent", 3, { "1": 13 }), node("silent", null)),
    node("agent", 4, {}, node("tool", 5)),
    node("root", null, {}, node("entry", 6)),
  ),
);

test("L1, L2 and the ways to a prediction", () => {
  const trie = Trie.parse(JSON.stringify(sample));
  for (const [path, index, want] of [
    [["wf", "agent"], 1, 13],
    [["wf", "agent"], 99, 3],
    [["wf", "agent", "unknown"], 1, 13],
    [["wf", "silent"], 1, 12],
    [["nowhere"], 1, 11],
    [["nowhere"], 2, 1],
    [[], 1, 11],
    [["root", "wf", "agent"], 1, 13],
    [["wf", "other", "agent", "tool"], 1, 5],
    [["wf", "other", "tool"], 2, 2],
    [["entry"], 1, 6],
    [["root", "entry"], 1, 6],
    [["wf"], 7, 2],
    [["root", "wf", "unknown"], 1, 12],
  ] as const) {
    assert.equal(trie.find(path, index)?.remainingCalls.mean, want, `${path.join("/")} #${index}`);
  }
  assert.equal(Trie.parse(file(node("root", null))).find(["a"], 1), undefined);
});

test("NeMo Agent Toolkit's own way", async () => {
  const trie = Trie.parse(sample);
  for (const [path, want] of [
    [["entry"], 11],
    [["wf", "other", "agent", "tool"], 12],
    [["root", "wf", "agent"], 11],
  ] as const) {
    assert.equal(trie.findPlain(path, 1)?.remainingCalls.mean, want, path.join("/"));
  }
  for (const [compat, want] of [
    ["nat-1.8", 11],
    [undefined, 7],
  ] as const) {
    const w = wire();
    const fetch = hinted({ fetch: w.fetch, lookup: trie, ...(compat && { compat }) });
    await run("r", () => enterFunction("entry", () => fetch(chatURL, post("{}"))));
    assert.equal(hintsOf(w.last())["total_requests"], want);
  }
});

test("names that were shortened", () => {
  const read = (name: string) => readFileSync(join(root, "clients/typescript/test/testdata", name), "utf8");
  // What stator trie build made of the spans.
  const trie = Trie.parse(read("long_names.json"));
  const spans = read("long_names.jsonl").trim().split("\n");
  assert.ok(spans.length > 5);
  for (const line of spans) {
    const span = JSON.parse(line) as { path: string[]; completion_tokens: number };
    const shown = `${span.path[1]!.slice(0, 8)}… of ${span.path[1]!.length}`;
    assert.equal(trie.find(span.path, 1)?.outputTokens.mean, span.completion_tokens, shown);
    assert.equal(trie.findPlain(span.path, 1)?.outputTokens.mean, span.completion_tokens, shown);
    const other = [span.path[0]!, span.path[1] + "x"];
    assert.equal(trie.find(other, 1)?.outputTokens.sampleCount, spans.length, `another than ${shown}`);
  }
});

test("J1 old files and absent members", () => {
  const trie = Trie.parse('{"root":{"name":"root","predictions_any_index":{"remaining_calls":{"mean":3.0},"interarrival_ms":{},"output_tokens":{}},"more":1}}');
  assert.deepEqual(trie.find([], 1), {
    remainingCalls: { sampleCount: 0, mean: 3, p50: 0, p90: 0, p95: 0 },
    interarrivalMs: { sampleCount: 0, mean: 0, p50: 0, p90: 0, p95: 0 },
    outputTokens: { sampleCount: 0, mean: 0, p50: 0, p90: 0, p95: 0 },
    latencySensitivity: null,
  });
});

test("what is wrong with a file is said by its path", () => {
  const deep: { name: string; children: Record<string, unknown> } = { name: "root", children: {} };
  for (let i = 0, at = deep; i < 300; i++) at = at.children["x"] = { name: "x", children: {} };
  for (const [text, want] of [
    ["{", /trie: expected JSON/],
    ["[]", /the file: expected an object, got \[\]/],
    ['{"version":"2.0","root":{"name":"root"}}', /version: expected "1.0", got "2.0"/],
    ['{"version":"1.0"}', /root: expected an object, got nothing/],
    ['{"root":{}}', /root\.name: expected a string, got nothing/],
    ['{"root":{"name":"r","children":{"a":{"name":"a","predictions_any_index":{}}}}}', /root\.children\.a\.predictions_any_index\.remaining_calls: expected an object/],
    ['{"root":{"name":"r","predictions_by_call_index":{"0":{}}}}', /predictions_by_call_index\.0: expected a whole number of at least 1/],
    ['{"root":{"name":"r","predictions_any_index":{"remaining_calls":{"mean":"3"},"interarrival_ms":{},"output_tokens":{}}}}', /remaining_calls\.mean: expected a number, got "3"/],
    ['{"root":{"name":"r","predictions_any_index":{"remaining_calls":{},"interarrival_ms":{},"output_tokens":{},"latency_sensitivity":1.5}}}', /latency_sensitivity: expected a whole number or null/],
    [JSON.stringify({ root: deep }), /expected at most 256 levels/],
  ] as const) {
    assert.throws(() => Trie.parse(text), want);
  }
});

test("T15 predictions by the path of functions, and by invocation", async () => {
  const w = wire();
  const trie = Trie.parse(file(node("root", 7, {}, node("my_workflow", null, {}, node("react_agent", 3, { "2": 1 })))));
  const send = hinted({ fetch: w.fetch, lookup: trie });
  const total = () => hintsOf(w.last())["total_requests"];
  await run("r", () =>
    enterFunction("my_workflow", async () => {
      await enterFunction("react_agent", async () => {
        await send(chatURL, post("{}"));
        assert.deepEqual(hintsOf(w.last()), { latency_sensitivity: 2, osl: 200, priority: 2, prefix_id: "r-d2", total_requests: 4, iat: 500 });
        await send(chatURL, post("{}"));
        assert.equal(total(), 3, "the second of the invocation: two made, one remains");
      });
      await enterFunction("react_agent", async () => {
        await send(chatURL, post("{}"));
        assert.equal(total(), 6, "the first of another invocation, the third of the prefix");
      });
    }),
  );
  await run("q", () => send(chatURL, post("{}")));
  assert.equal(total(), 8, "no function: the root's");
  const empty = hinted({ fetch: w.fetch, lookup: Trie.parse(file(node("root", null))) });
  await empty(chatURL, post("{}"));
  assert.equal(total(), 10);
  assert.equal(empty.stats().unpredicted, 1);
});
