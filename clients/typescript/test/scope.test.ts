import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "node:test";
import { branch, current, enterFunction, HintContext, hinted, ready, run } from "../src/index.js";
import { withInterArrival, withLatencySensitivity, withOutputTokens, withPrefixId, withRemainingCalls, type Problem } from "../src/index.js";
import { chatURL, hintsOf, post, wire } from "./wire.js";

await ready;

const prefix = () => current().prefixId("stray");

test("X1 outside of everything the id is that of the wrapper's own run", async () => {
  const w = wire();
  const send = hinted({ fetch: w.fetch });
  await send(chatURL, post("{}"));
  const first = hintsOf(w.last())["prefix_id"] as string;
  assert.match(first, /^[0-9a-f]{16}-d0$/);
  await send(chatURL, post("{}"));
  assert.equal(hintsOf(w.last())["prefix_id"], first);
  await hinted({ fetch: w.fetch })(chatURL, post("{}"));
  assert.notEqual(hintsOf(w.last())["prefix_id"], first);
});

test("X2 one override after the other, and none", () => {
  run("r", () => {
    assert.equal(withPrefixId("A", prefix), "A");
    assert.equal(withPrefixId("B", prefix), "B");
    assert.equal(withPrefixId("A", () => withPrefixId("", prefix)), "r-d0");
    assert.equal(prefix(), "r-d0");
  });
});

test("X3 scopes nest, also over an await", async () => {
  await run("r", async () => {
    await withPrefixId("outer", async () => {
      await turn();
      await withPrefixId("inner", async () => {
        await turn();
        assert.equal(prefix(), "inner");
      });
      assert.equal(prefix(), "outer");
    });
    assert.equal(prefix(), "r-d0");
  });
  assert.equal(current(), HintContext.root);
});

test("X4 an error leaves the scope", async () => {
  await run("r", async () => {
    await assert.rejects(
      enterFunction("f", async () => {
        await turn();
        throw new Error("no");
      }),
    );
    assert.equal(prefix(), "r-d0");
    assert.throws(() => withPrefixId("x", () => assert.fail()));
    assert.equal(prefix(), "r-d0");
  });
});

test("X5 an override is the same for all calls", async () => {
  const w = wire();
  const send = hinted({ fetch: w.fetch });
  await withPrefixId("mine", () => Promise.all(Array.from({ length: 5 }, () => enterFunction("f", () => send(chatURL, post("{}"))))));
  assert.deepEqual(w.sent.map((s) => hintsOf(String(s.init!.body))["prefix_id"]), Array(5).fill("mine"));
});

test("a run begins outside of everything, and depth counts functions", () => {
  run("a", () =>
    enterFunction("f", () =>
      branch("left", () =>
        enterFunction("g", () => {
          assert.equal(prefix(), "a-d2/left");
          assert.deepEqual(current().path, ["f", "g"]);
          run("b", () => assert.equal(prefix(), "b-d0"));
          assert.equal(branch("", prefix), "a-d2");
        }),
      ),
    ),
  );
  assert.match(run(undefined, prefix), /^[0-9a-f]{32}-d0$/);
});

test("branches at the same time do not see each other", async () => {
  const ids = await run("r", () =>
    Promise.all(
      ["a", "b", "c"].map((name) =>
        branch(name, async () => {
          await turn();
          return prefix();
        }),
      ),
    ),
  );
  assert.deepEqual(ids, ["r-d0/a", "r-d0/b", "r-d0/c"]);
});

test("S2 the highest sensitivity counts, and ends with its scope", () => {
  const level = () => current().level;
  withLatencySensitivity(3, () => {
    assert.equal(level(), 3);
    assert.equal(withLatencySensitivity(1, level), 3);
    assert.throws(() => withLatencySensitivity(9, () => assert.fail()));
    assert.equal(level(), 3);
  });
  assert.equal(level(), 0);
});

test("what a program expects ends with its scope, and nothing takes it away", () => {
  const all = () => [current().outputTokens, current().remainingCalls, current().interArrivalMs];
  withOutputTokens(7, () =>
    withRemainingCalls(0, () =>
      withInterArrival(0.5, () => {
        assert.deepEqual(all(), [7, 0, 0.5]);
        assert.deepEqual(run("r", all), [7, 0, 0.5]);
        assert.deepEqual(withOutputTokens(0, () => withRemainingCalls(-3, () => withInterArrival(-1, all))), [0, -1, 0]);
        assert.deepEqual(all(), [7, 0, 0.5]);
      }),
    ),
  );
  assert.deepEqual(all(), [0, -1, 0]);
});

test("a time between calls is rounded, and never to nothing", async () => {
  const w = wire();
  const send = hinted({ fetch: w.fetch });
  for (const [ms, want] of [[0.2, 1], [2.4, 2], [2.5, 3], [812.6, 813]] as const) {
    await withInterArrival(ms, () => send(chatURL, post("{}")));
    assert.equal(hintsOf(w.last())["iat"], want);
  }
});

/** junk is what a program without types may hand over. */
const junk: unknown[] = [undefined, null, NaN, Infinity, true, {}, [], Object.create(null), Symbol("s"), () => {}, { toString: () => assert.fail() }];

test("S4 a number that is none says nothing, and is reported by what sends next", async () => {
  const scopes = { withLatencySensitivity, withOutputTokens, withRemainingCalls, withInterArrival };
  for (const [name, scope] of Object.entries(scopes)) {
    for (const bad of [...junk, "3", 3n, ...(scope === withInterArrival ? [] : [2.5])] as number[]) {
      const w = wire();
      const problems: Problem[] = [];
      const send = hinted({ fetch: w.fetch, failClosed: true, onProblem: (p) => problems.push(p) });
      const plain = send.with(HintContext.root.run("r"));
      await plain(chatURL, post("{}"));
      await run("r", () => scope(bad, () => send(chatURL, post("{}"))));
      await plain(chatURL, post("{}"));
      assert.equal(w.sent.length, 3, "fn was called");
      assert.equal(String(w.sent[1]!.init!.body), String(w.sent[0]!.init!.body), name);
      assert.deepEqual(problems.map((p) => p.kind), ["scope"]);
      assert.match(problems[0]!.message, new RegExp(`^${name}: expected a (whole )?number.*, got `));
      assert.equal(send.stats().problems, 1);
    }
  }
  assert.equal(withLatencySensitivity(5, () => withLatencySensitivity(NaN, current)).level, 5);
});

test("a name that is none says nothing, and is reported by what sends next", async () => {
  const scopes = { run, enterFunction, withPrefixId, branch };
  const wants = { run: /^[0-9a-f]{32}-d0$/, enterFunction: /^outer-d1$/, withPrefixId: /^outer-d0$/, branch: /^outer-d0$/ };
  for (const [name, scope] of Object.entries(scopes)) {
    for (const bad of junk as string[]) {
      const w = wire();
      const problems: Problem[] = [];
      const send = hinted({ fetch: w.fetch, onProblem: (p) => problems.push(p), lookup: { find: () => undefined } });
      await run("outer", () => scope(bad, () => send(chatURL, post("{}"))));
      assert.match(hintsOf(w.last())["prefix_id"] as string, wants[name as keyof typeof wants]);
      const messages = problems.map((p) => p.message);
      if (scope === run && bad == null) assert.deepEqual(messages, []);
      else assert.match(messages.join("; "), new RegExp(`^${name}: expected a string, got [^;]*$`));
    }
  }
});

test("numbers name things as strings do", () => {
  const [run, name] = [4711 as unknown as string, 5n as unknown as string];
  const context = HintContext.root.run(run).enterFunction(name).branch(name);
  assert.deepEqual([context.runId, context.path, context.prefixId(""), context.faults], ["4711", ["5"], "4711-d1/5", {}]);
  assert.equal(context.withPrefixId(run).prefixId(""), "4711");
});

test("faults of a context that lives long are bounded", () => {
  let context = HintContext.root;
  for (let i = 0; i < 100; i++) context = context.withRemainingCalls(i + 0.5).withOutputTokens(NaN);
  assert.deepEqual(context.faults, {
    withRemainingCalls: "withRemainingCalls: expected a whole number, got 99.5",
    withOutputTokens: "withOutputTokens: expected a whole number, got NaN",
  });
});

test("scopes hand their context over, and a context goes before scopes", async () => {
  const w = wire();
  const send = hinted({ fetch: w.fetch });
  const context = run("explicit", (c) => c.enterFunction("f"));
  await run("other", () => send.with(context)(chatURL, post("{}")));
  assert.equal(hintsOf(w.last())["prefix_id"], "explicit-d1");
});

/** load loads the module anew, with another global process. */
async function load(name: string, other: unknown): Promise<typeof import("../src/scope.js")> {
  const own = Object.getOwnPropertyDescriptor(globalThis, "process")!;
  Object.defineProperty(globalThis, "process", { configurable: true, value: other });
  try {
    const specifier = `../src/scope.js?${name}`;
    return (await import(specifier)) as typeof import("../src/scope.js");
  } finally {
    Object.defineProperty(globalThis, "process", own);
  }
}

test("scopes work where builtin modules have to be imported", async () => {
  const old = await load("old", { versions: { node: "18.0.0" } });
  await old.ready;
  await old.run("r", async () => {
    await turn();
    assert.equal(old.current().runId, "r");
  });
});

test("without storage the context is handed over and nothing else", async () => {
  const browser = await load("browser", undefined);
  await browser.ready;
  browser.run("r", (context) => {
    assert.equal(context.enterFunction("f").prefixId(""), "r-d1");
    assert.equal(browser.current(), browser.HintContext.root);
  });
});
