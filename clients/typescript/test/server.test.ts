// The openai package, through the wrapper and a proxy that remembers what passes, to a real
// server with simulated engines.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { enterFunction, hinted, run, withLatencySensitivity } from "../src/index.js";

const program = process.env["STATOR_BIN"];
assert.ok(program, "STATOR_BIN: expected the path of stator");

/** Passed is what the proxy saw of a request. */
interface Passed {
  length: string | undefined;
  body: string;
}

const passed: Passed[] = [];
let failures = 0; // how many requests the proxy still fails
let dir: string;
let stator: ChildProcess;
let proxy: Server;
let base: string;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "hints-"));
  stator = spawn(program, ["serve", "--sim", "2", "--sim-ttft", "1ms", "--sim-itl", "1ms", "--listen", "127.0.0.1:0", "--trace-out", join(dir, "trace.jsonl")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.once("exit", () => stator.kill("SIGKILL"));
  const address = await listening(stator);
  proxy = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks);
      if (req.method === "POST") passed.push({ length: req.headers["content-length"], body: body.toString() });
      if (failures > 0) {
        failures--;
        res.writeHead(503).end();
        return;
      }
      const up = request(address + req.url!, { method: req.method, headers: req.headers }, (answer) => {
        res.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(res);
      });
      up.on("error", (e) => res.destroy(e));
      up.end(body);
    });
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  base = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/v1`;
}, { timeout: 30_000 });

after(async () => {
  proxy?.closeAllConnections();
  proxy?.close();
  if (stator && stator.exitCode === null) {
    const exit = once(stator, "exit");
    stator.kill("SIGTERM");
    await exit;
  }
  await rm(dir, { recursive: true, force: true });
}, { timeout: 30_000 });

/** listening returns the address that a server says it listens on. */
async function listening(server: ChildProcess): Promise<string> {
  const found = new Promise<string>((resolve, reject) => {
    createInterface(server.stdout!).on("line", (line) => {
      const address = /^listening on (\S+)$/.exec(line)?.[1];
      if (address) resolve(address);
    });
    server.once("error", reject);
    server.once("exit", (code) => reject(new Error(`stator ended with ${code}`)));
  });
  return found;
}

function client(f: typeof fetch): OpenAI {
  return new OpenAI({ baseURL: base, apiKey: "none", fetch: f, maxRetries: 2 });
}

const question = {
  model: "stator-sim",
  messages: [{ role: "user" as const, content: "héllo \u2028 \"quoted\" 😀" }],
  max_tokens: 5,
  temperature: 0.1,
};
const explained = { ...question, nvext: { extra_fields: ["routing"] } };

/** without sends the same call without hints and returns the body that the SDK writes. */
async function without(body: object): Promise<string> {
  await client(fetch).chat.completions.create(body as typeof question);
  return passed.pop()!.body;
}

/** row returns the trace's row of an answer, once it is written. */
async function row(prefix: string): Promise<{ hints: Record<string, unknown>; outcome: string }> {
  for (;;) {
    const lines = (await readFile(join(dir, "trace.jsonl"), "utf8")).split("\n").slice(0, -1);
    const rows = lines.map((line) => JSON.parse(line) as { hints?: Record<string, unknown>; outcome: string });
    const found = rows.find((r) => r.hints?.["prefix_id"] === prefix);
    if (found) return found as { hints: Record<string, unknown>; outcome: string };
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const limit = { timeout: 30_000 };

test("an answer at once", limit, async () => {
  const plain = await without(explained);
  const f = hinted();
  const answer = await run("once", () => enterFunction("agent", () => client(f).chat.completions.create(explained)));
  assert.ok(answer.choices[0]!.message.content);
  const { body, length } = passed.pop()!;
  const ours =
    ',"agent_hints":{"latency_sensitivity":2.0,"osl":512,"priority":2,"prefix_id":"once-d1","total_requests":10,"iat":250},"cache_control":{"type":"ephemeral","ttl":"3s"}';
  assert.equal(body, plain.replace('"extra_fields":["routing"]', '"extra_fields":["routing"]' + ours));
  assert.equal(length, String(Buffer.byteLength(body)));
  const { routing } = (answer as unknown as { nvext: { routing: object } }).nvext;
  assert.ok(Object.keys(routing).length > 0, "the server read nvext");
  assert.deepEqual(f.stats(), { hinted: 1, unmatched: 0, untouched: 0, retried: 0, withoutRun: 0, predicted: 0, unpredicted: 0, problems: 0, prefixes: 1, evicted: 0 });
});

test("a stream", limit, async () => {
  const plain = await without(question);
  const stream = await run("stream", () =>
    withLatencySensitivity(7, () => client(hinted({ osl: "LOW", iat: 40 })).chat.completions.create({ ...question, stream: true })),
  );
  let text = "";
  let chunks = 0;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    chunks++;
  }
  assert.ok(text && chunks > 1);
  const ours =
    ',"nvext":{"agent_hints":{"latency_sensitivity":7.0,"osl":128,"priority":7,"prefix_id":"stream-d0","total_requests":10,"iat":40},"cache_control":{"type":"ephemeral","ttl":"1s"}}}';
  assert.equal(passed.pop()!.body, plain.slice(0, -1) + ',"stream":true' + ours);
  const { hints, outcome } = await row("stream-d0");
  assert.deepEqual(
    { ...hints, outcome },
    { latency_sensitivity: 7, osl: 128, priority: 7, prefix_id: "stream-d0", total_requests: 10, iat: 40, cache_ttl: "1s", outcome },
  );
});

test("the other carriers are accepted, too", limit, async () => {
  for (const carrier of ["strict", "annotations"] as const) {
    await run(carrier, () => client(hinted({ carrier })).chat.completions.create(question));
    assert.match(passed.pop()!.body, /"nvext":\{"agent_hints":\{"latency_sensitivity":2\.0,"osl":512,"priority":2\}/);
  }
});

test("the SDK's retry is the same call", limit, async () => {
  const f = hinted({ cacheControl: "first_only" });
  failures = 1;
  await run("again", () => client(f).chat.completions.create(question));
  const [second, first] = [passed.pop()!, passed.pop()!];
  assert.equal(second.body, first.body);
  assert.match(second.body, /cache_control/);
  assert.equal(f.stats().retried, 1);
});

test("a fetch without an SDK, and other routes", limit, async () => {
  const f = hinted();
  const models = await f(`${base}/models`);
  assert.equal(models.status, 200);
  const answer = await f(`${base}/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{ "model":"stator-sim", "prompt":"a", "max_tokens":2, "seed":9007199254740993 }',
  });
  assert.equal(answer.status, 200, await answer.text());
  assert.match(passed.pop()!.body, /^\{ "model":"stator-sim", "prompt":"a", "max_tokens":2, "seed":9007199254740993,"nvext":\{.*\} \}$/);
});
