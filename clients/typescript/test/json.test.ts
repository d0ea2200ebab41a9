import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { parseArray, parseObject } from "../src/json.js";
import { sha256 } from "../src/sha256.js";

/** chance returns numbers below n, the same ones every time. */
function chance(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

const pieces = ["{", "}", "[", "]", ",", ":", '"a"', '"b"', '"\\"]"', '"\\\\"', '"\\u0061"', "1", "-0.5e+3", "01", "true", "null", "nul", " ", "\n", '"', "\\"];

test("what is an object here is one for JSON.parse, and the other way round", () => {
  const draw = chance(1);
  let objects = 0;
  for (let i = 0; i < 200_000; i++) {
    let text = i % 2 ? '{"a":' : "{";
    for (let n = draw(8); n > 0; n--) text += pieces[draw(pieces.length)];
    if (draw(2)) text += "}";
    let want = false;
    try {
      const v: unknown = JSON.parse(text);
      want = typeof v === "object" && v !== null && !Array.isArray(v);
    } catch {
      // Escapes and control characters inside of strings are not our business.
      if (/"[^"]*(\\[^"\\u]|\n)/.test(text)) continue;
    }
    if (want) objects++;
    assert.equal(parseObject(text) !== undefined, want, text);
  }
  assert.ok(objects > 1000, `${objects} objects`);
});

test("edits change what they name and nothing else", () => {
  const draw = chance(2);
  const keys = ["a", "b", "c", "d"];
  for (let i = 0; i < 20_000; i++) {
    const space = () => ["", " ", "\n\t"][draw(3)]!;
    const members = Array.from({ length: draw(5) }, () => [keys[draw(4)]!, ["1.0", '"}"', "[{}, 1e400]", "12345678901234567890"][draw(4)]!] as const);
    const text = `${space()}{${space()}${members.map(([k, v]) => `${space()}"${k}"${space()}:${space()}${v}${space()}`).join(",")}}${space()}`;
    const edits = keys.filter(() => draw(3) === 0).map((k) => [k, `"new ${k}"`] as const);
    const edited = parseObject(parseObject(text)!.edit(edits));
    assert.ok(edited, text);
    const named = new Map(edits);
    const want = members.filter(([k], at) => !named.has(k) || members.map(([l]) => l).lastIndexOf(k) === at).map(([k, v]) => [k, named.get(k) ?? v]);
    want.push(...edits.filter(([k]) => !members.some(([l]) => l === k)).map(([k, v]) => [k, v]));
    assert.deepEqual(edited.members.map((m) => [m.key, edited.text.slice(m.valueStart, m.valueEnd)]), want, text);
    if (edits.length === 0) assert.equal(edited.text, text);
  }
});

test("a long body takes time in proportion to its length", () => {
  const string = JSON.stringify('he said "no" \\ and left\n'.repeat(200_000));
  const body = `{"messages":[{"content":${string}}],"n":1}`;
  const started = performance.now();
  assert.equal(parseObject(body)!.members.length, 2);
  assert.equal(parseObject(`{"a":"${"\\\\".repeat(2_000_000)}"}`)!.members.length, 1);
  assert.ok(performance.now() - started < 5000);
});

test("arrays", () => {
  assert.deepEqual(parseArray(' [ 1.0 , "a]" ,[ ] ] '), ["1.0", '"a]"', "[ ]"]);
  assert.deepEqual(parseArray("[]"), []);
  for (const bad of ["{}", "[1,]", "[1", "[1]]", ""]) assert.equal(parseArray(bad), undefined, bad);
});

test("sha256", () => {
  for (const n of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000]) {
    const text = Array.from("aé日😀".repeat(n)).slice(0, n).join("");
    assert.equal(sha256(text), createHash("sha256").update(text).digest("hex"), `${n}`);
  }
});
