// SHA-256, because what browsers have of it is asynchronous and a fetch has to be started
// at once. It is only used for ids that are too long.

const primes: number[] = [];
for (let n = 2; primes.length < 64; n++) {
  if (primes.every((p) => n % p !== 0)) primes.push(n);
}

/** fraction returns the first 32 bits of the fractional part of x. */
function fraction(x: number): number {
  return ((x - Math.floor(x)) * 2 ** 32) >>> 0;
}

const start = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const round = primes.map((p) => fraction(Math.cbrt(p)));

/** sha256 returns the digest of text in UTF-8, as lower-case hexadecimal digits. */
export function sha256(text: string): string {
  const message = new TextEncoder().encode(text);
  const blocks = new Uint8Array(((message.length + 8) >> 6 << 6) + 64);
  blocks.set(message);
  blocks[message.length] = 0x80;
  const view = new DataView(blocks.buffer);
  view.setUint32(blocks.length - 8, Math.floor(message.length / 2 ** 29));
  view.setUint32(blocks.length - 4, (message.length << 3) >>> 0);

  const hash = Uint32Array.from(start);
  const w = new Uint32Array(64);
  for (let at = 0; at < blocks.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15]!;
      const b = w[i - 2]!;
      const s0 = rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3);
      const s1 = rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10);
      w[i] = w[i - 16]! + s0 + w[i - 7]! + s1;
    }
    let [a, b, c, d, e, f, g, h] = hash as unknown as [number, number, number, number, number, number, number, number];
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + round[i]! + w[i]!) | 0;
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((v, i) => (hash[i] = hash[i]! + v));
  }
  return Array.from(hash, (v) => v.toString(16).padStart(8, "0")).join("");
}

function rotate(x: number, n: number): number {
  return (x >>> n) | (x << (32 - n));
}
