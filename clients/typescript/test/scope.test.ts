import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "node:test";
import { branch, current, enterFunction, HintContext, hinted, ready, run, withLatencySensitivity, withPrefixId } from "../src/index.js";
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

test("S4 a sensitivity that is no whole number is refused at once", () => {
  for (const bad of [2.5, NaN, Infinity, "3" as unknown as number, undefined as unknown as number]) {
    assert.throws(() => withLatencySensitivity(bad, () => assert.fail("called")), /TypeError: latency sensitivity: expected a whole number/);
  }
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
