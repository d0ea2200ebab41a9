import assert from "node:assert/strict";
import { test } from "node:test";
import { HintContext, HintError, hinted, matchAll, type Options, type Problem } from "../src/index.js";
import { chatURL, hintsOf, post, predicts, wire } from "./wire.js";

/** send sends one body through a new wrapper and returns what reached the wire. */
async function send(options: Options, body = "{}", context = HintContext.root): Promise<string> {
  const w = wire();
  await hinted({ ...options, fetch: w.fetch }).with(context)(chatURL, post(body));
  return w.last();
}

test("C2, C3, C5, C6 options that are wrong are named", () => {
  for (const bad of [
    { totalRequests: 0 },
    { totalRequests: 51 },
    { totalRequests: 1.5 },
    { osl: 0 },
    { osl: "INVALID" },
    { osl: "512" },
    { iat: 0 },
    { iat: "INVALID" },
    { maxSensitivity: 0 },
    { maxSensitivity: -1 },
    { cachePin: "invalid" },
    { cacheControl: "invalid" },
    { polarity: "" },
    { carrier: "headers" },
    { compat: "nat-1.4" },
    { maxPrefixes: 0 },
    { osl: 5n },
    { lookup: {} },
    { lookup: { find: 1 } },
    { lookup: "trie.json" },
    { match: /completions/ },
    { fetch: {} },
    { onProblem: console },
    { failClosed: "false" },
  ]) {
    const name = Object.keys(bad)[0]!;
    assert.throws(() => hinted(bad as Options), new RegExp(`^TypeError: ${name}: expected `), name);
  }
  for (const good of [{ totalRequests: 1 }, { totalRequests: 50 }, { maxSensitivity: 1 }, { maxSensitivity: 10000 }, { cachePin: null }]) {
    hinted(good as Options);
  }
});

test("options that nobody knows are named, with the nearest one", () => {
  for (const [bad, want] of [
    [{ totalRequest: 5 }, /^TypeError: totalRequest: unknown option; did you mean totalRequests\?$/],
    [{ osl: 5, max_sensitivity: 5 }, /^TypeError: max_sensitivity: unknown option; did you mean maxSensitivity\?$/],
    [{ cachecontrol: "always" }, /^TypeError: cachecontrol: unknown option; did you mean cacheControl\?$/],
    [{ onproblems: undefined }, /^TypeError: onproblems: unknown option; did you mean onProblem\?$/],
    [{ typo: 1 }, /^TypeError: typo: unknown option; there are fetch, totalRequests, osl, .*, onProblem$/],
    [{ toString: 1 }, /^TypeError: toString: unknown option; /],
    [{ ["x".repeat(1000)]: 1 }, /^TypeError: x{80}: unknown option; /],
    [null, /^TypeError: options: expected an object, got null$/],
    ["osl", /^TypeError: options: expected an object, got "osl"$/],
  ] as [Options, RegExp][]) {
    assert.throws(() => hinted(bad), want);
  }
});

test("C4 words for numbers", async () => {
  for (const [word, osl, iat] of [
    ["LOW", 128, 50],
    ["medium", 512, 250],
    ["HIGH", 2048, 750],
  ] as const) {
    const hints = hintsOf(await send({ osl: word, iat: word }));
    assert.deepEqual([hints["osl"], hints["iat"]], [osl, iat]);
  }
});

test("T9, T10, T11 under failClosed: rejected, not sent, not counted", async () => {
  for (const [options, want] of [
    [{ maxSensitivity: 1 }, /latency_sensitivity 2 exceeds max_sensitivity 1/],
    [{ lookup: { find: () => predicts(3, 3, 3, -1) } }, /latency_sensitivity -1 must be >= 0/],
    [{ compat: "nat-1.5", lookup: { find: () => predicts(0, 3, 3) } }, /total_requests 0 must be >= 1/],
    [{ compat: "nat-1.5", lookup: { find: () => predicts(3, 0, 3) } }, /osl 0 must be >= 1/],
    [{ compat: "nat-1.5", lookup: { find: () => predicts(3, 3, 0) } }, /iat 0 must be >= 1/],
  ] as [Options, RegExp][]) {
    const w = wire();
    const f = hinted({ ...options, failClosed: true, fetch: w.fetch });
    await assert.rejects(f(chatURL, post("{}")), (e) => e instanceof HintError && want.test(e.message));
    assert.deepEqual([w.sent.length, f.stats().prefixes, f.stats().hinted], [0, 0, 0]);
    await f(chatURL, post("plain text"));
    assert.equal(w.last(), "plain text", "a body without hints is no reason to fail");
  }
  assert.equal(hintsOf(await send({ failClosed: true, compat: "nat-1.8", lookup: { find: () => predicts(0, 0, 0) } }))["total_requests"], 10);
});

test("what is no call of a model passes as the very same objects", async () => {
  const w = wire();
  const f = hinted({ fetch: w.fetch });
  const body = '{"model":"m"}';
  const url = "http://engine/v1/";
  const cases: [Parameters<typeof fetch>[0], RequestInit | undefined][] = [
    [`${url}models`, undefined],
    [`${url}embeddings`, post(body)],
    [`${url}chat/completions`, { ...post(body), method: "PUT" }],
    [`${url}chat/completions`, { body, method: "POST", headers: { "content-type": "text/plain" } }],
    [`${url}chat/completions/123`, post(body)],
    [`${url}files?x=/chat/completions`, post(body)],
    [`${url}threads/thread_1/messages`, post(body)],
    ["/threads/thread_1/messages?x=1", post(body)],
    ["http://messages", post(body)],
    [new Request(`${url}chat/completions`, post(body)), undefined],
    [`${url}chat/completions`, { method: "POST", body: new Blob([body]) }],
    [`${url}chat/completions`, { method: "POST", body: new FormData() }],
    [`${url}chat/completions`, { method: "POST", body: new TextEncoder().encode(body) }],
    [`${url}chat/completions`, { method: "POST", body: new ReadableStream(), duplex: "half" } as RequestInit],
    [`${url}chat/completions`, { method: "POST" }],
    [`${url}chat/completions`, post(body, { "content-encoding": "gzip" })],
  ];
  for (const [input, init] of cases) {
    await f(input, init);
    const sent = w.sent[w.sent.length - 1]!;
    assert.ok(sent.input === input && sent.init === init, `${String(input)} ${JSON.stringify(init)}`);
  }
  const { unmatched, untouched, hinted: count, prefixes } = f.stats();
  assert.deepEqual({ unmatched, untouched, count, prefixes }, { unmatched: 9, untouched: 7, count: 0, prefixes: 0 });
});

test("calls of a model are known in every form of a fetch", async () => {
  const w = wire();
  const f = hinted({ fetch: w.fetch });
  const body = '{"model":"m"}';
  const cases: [Parameters<typeof fetch>[0], RequestInit][] = [
    ["/v1/chat/completions", { method: "post", body }],
    [new URL("http://engine/v1/completions?api-version=1#x"), post(body)],
    ["http://engine/openai/responses", { ...post(body), headers: new Headers({ "Content-Type": "application/json; charset=utf-8" }) }],
    ["http://engine/v1/messages", { ...post(body), headers: [["content-type", "application/vnd.x+json"]] }],
    [new Request("http://engine/v1/chat/completions", { method: "POST" }), { body }],
    ["http://user@threads/messages", post(body)],
    ["//threads/v1/messages", post(body)],
    ["/messages?after=/threads/1", post(body)],
  ];
  for (const [input, init] of cases) {
    const before = { ...init };
    await f(input, init);
    assert.match(w.last(), /"osl":512/, String(input));
    assert.deepEqual(init, before, "the caller's init is not changed");
  }
});

test("a body that a header holds for passes as the very same object", async () => {
  const w = wire();
  const problems: Problem[] = [];
  const f = hinted({ fetch: w.fetch, onProblem: (p) => problems.push(p) });
  const sealing: [string, string][] = [
    ["content-digest", "sha-256=:x:"],
    ["Digest", "SHA-256=x"],
    ["Content-MD5", "x"],
    ["x-amz-content-sha256", ""],
    ["Signature", "sig1=:x:"],
    ["Authorization", "AWS4-HMAC-SHA256 Credential=x"],
    ["Content-Encoding", "gzip"],
  ];
  for (const [name, value] of sealing) {
    const init = post("{}", { [name]: value });
    await f(chatURL, init);
    assert.equal(w.sent[w.sent.length - 1]!.init, init, name);
    const { kind, message } = problems[problems.length - 1]!;
    assert.ok(kind === "body" && message.toLowerCase().includes(`has ${name.toLowerCase()}`), message);
  }
  assert.deepEqual([f.stats().untouched, f.stats().prefixes], [sealing.length, 0]);
  await f(new Request(chatURL, { method: "POST", headers: { "content-digest": "x" } }), { body: "{}" });
  assert.equal(w.last(), "{}", "headers of a Request");
  for (const [name, value] of [["Authorization", "Bearer AWS4-x"], ["Content-Encoding", "identity"], ["Signature-Input", "x"]] as const) {
    await f(chatURL, post("{}", { [name]: value }));
    assert.equal(hintsOf(w.last())["osl"], 512, name);
  }
});

test("everything else of a request stays, a length that was set goes", async () => {
  const w = wire();
  const { signal } = new AbortController();
  const init: RequestInit = { ...post("{}", { "content-length": "2", "x-a": "1" }), signal, redirect: "error", keepalive: true };
  await hinted({ fetch: w.fetch })(chatURL, init);
  const sent = w.sent[0]!.init!;
  assert.ok(sent.signal === signal && sent.redirect === "error" && sent.keepalive === true && sent.method === "POST");
  assert.deepEqual(Object.fromEntries(sent.headers as Headers), { "content-type": "application/json", "x-a": "1" });
  assert.equal((init.headers as Record<string, string>)["content-length"], "2");
});

test("matchAll is for every POST", async () => {
  const w = wire();
  await hinted({ fetch: w.fetch, match: matchAll })("http://engine/v1/embeddings", post("{}"));
  assert.equal(hintsOf(w.last())["iat"], 250);
});

test("whatever throws, the request goes out", async () => {
  const problems: Problem[] = [];
  const boom = () => {
    throw new Error("boom");
  };
  const onProblem = (p: Problem) => {
    problems.push(p);
    boom();
  };
  assert.equal(await send({ onProblem, match: boom }, '{"a":1}'), '{"a":1}');
  assert.equal(hintsOf(await send({ onProblem, lookup: { find: boom } }))["total_requests"], 10);
  assert.equal(await send({ onProblem }, "[1]"), "[1]");
  assert.equal(hintsOf(await send({ onProblem, maxSensitivity: 1 }))["priority"], 1);
  assert.deepEqual(problems.map((p) => p.kind), ["internal", "lookup", "body", "bounds"]);
  assert.equal((problems[0]!.error as Error).message, "boom");
  assert.equal(problems[3]!.message, "latency_sensitivity 2 exceeds max_sensitivity 1");

  const w = wire();
  const bad = { ...post("{}"), headers: { "bad header\n": "x" } };
  await hinted({ fetch: w.fetch })(chatURL, bad);
  assert.equal(w.sent[0]!.init, bad, "what is wrong with a request is for the real fetch to say");
});

test("predictions that are no numbers predict nothing", async () => {
  for (const n of [NaN, Infinity, -Infinity, undefined as unknown as number]) {
    const hints = hintsOf(await send({ lookup: { find: () => predicts(n, n, n, n) } }));
    assert.deepEqual(hints["total_requests"], 10);
    assert.deepEqual([hints["osl"], hints["iat"], hints["latency_sensitivity"]], [512, 250, 2]);
  }
});

test("calls outside of runs have nothing to do with those before them", async () => {
  const w = wire();
  const f = hinted({ fetch: w.fetch, lookup: { find: () => predicts(4, 3, 3) } });
  const total = async (context: HintContext) => {
    for (let i = 0; i < 3; i++) await f.with(context)(chatURL, post("{}"));
    return hintsOf(w.last())["total_requests"];
  };
  assert.equal(await total(HintContext.root), 5);
  assert.equal(await total(HintContext.root.enterFunction("f").withRemainingCalls(1)), 2);
  assert.equal(await total(HintContext.root.withPrefixId("p")), 7);
  assert.equal(await total(HintContext.root.run("r")), 7);
});

test("an attempt that an SDK repeats keeps its index", async () => {
  const w = wire();
  const indices: number[] = [];
  const f = hinted({ fetch: w.fetch, cacheControl: "first_only", lookup: { find: (_, i) => (indices.push(i), undefined) } });
  for (const n of ["0", "1", "2", "0", "1"]) await f(chatURL, post("{}", { "X-Stainless-Retry-Count": n }));
  assert.deepEqual(indices, [1, 1, 1, 2, 2]);
  assert.deepEqual(w.sent.map((s) => String(s.init!.body).includes("cache_control")), [true, true, true, false, false]);
  assert.equal(f.stats().retried, 3);
});

test("calls at the same time have different indices", async () => {
  const w = wire();
  const f = hinted({ fetch: w.fetch, cacheControl: "first_only" });
  await Promise.all(Array.from({ length: 20 }, () => f(chatURL, post("{}"))));
  assert.equal(w.sent.filter((s) => String(s.init!.body).includes("cache_control")).length, 1);
});

test("counts are kept for a bounded number of prefixes", async () => {
  const w = wire();
  const f = hinted({ fetch: w.fetch, maxPrefixes: 3, cacheControl: "first_only", lookup: { find: () => undefined } });
  const pinned = async (id: string) => {
    await f.with(HintContext.root.withPrefixId(id))(chatURL, post("{}"));
    return w.last().includes("cache_control");
  };
  for (const id of ["a", "b", "c"]) assert.equal(await pinned(id), true);
  assert.equal(await pinned("a"), false);
  assert.equal(await pinned("d"), true, "makes b go");
  assert.equal(await pinned("a"), false);
  assert.equal(await pinned("b"), true);
  for (let i = 0; i < 10_000; i++) await pinned(`x${i}`);
  assert.equal(f.stats().prefixes, 3);
  assert.equal(f.stats().evicted, 10_002);
});

test("answers and failures of the fetch pass as they are", async () => {
  const response = new Response("x");
  assert.equal(await hinted({ fetch: async () => response })(chatURL, post("{}")), response);
  const error = new TypeError("fetch failed");
  await assert.rejects(hinted({ fetch: () => Promise.reject(error) })(chatURL, post("{}")), error);
});

test("a lookup that returns nonsense predicts nothing", async () => {
  for (const nonsense of [{}, 5, { remainingCalls: { mean: "3" } }]) {
    const w = wire();
    const problems: string[] = [];
    const send = hinted({ fetch: w.fetch, lookup: { find: () => nonsense as never }, onProblem: (p) => problems.push(p.kind) });
    await send(chatURL, post("{}"));
    assert.equal(hintsOf(w.last())["osl"], 512);
    assert.deepEqual(problems, ["lookup"]);
    assert.equal(send.stats().predicted, 0);
  }
});
