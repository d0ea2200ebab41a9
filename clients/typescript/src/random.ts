/** randomHex returns that many random bytes as hexadecimal digits. */
export function randomHex(bytes: number): string {
  const random = new Uint8Array(bytes);
  // Node 18 has crypto in modules only behind a flag. An id need not be a secret.
  if (globalThis.crypto) globalThis.crypto.getRandomValues(random);
  else random.forEach((_, i) => (random[i] = Math.random() * 256));
  return Array.from(random, (b) => b.toString(16).padStart(2, "0")).join("");
}
