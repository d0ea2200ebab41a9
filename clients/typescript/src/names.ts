// Names that `stator trie build` shortened.

const maxName = 256;

/**
 * shortened returns what a name of more than 256 bytes in UTF-8 is in a trie of `stator trie
 * build`: its beginning and a hash of all of it. Undefined if it is not that long.
 */
export function shortened(name: string): string | undefined {
  if (3 * name.length <= maxName) return undefined; // a unit of UTF-16 takes at most 3 bytes
  const bytes = new TextEncoder().encode(name);
  if (bytes.length <= maxName) return undefined;
  let cut = maxName - "~".length - 16;
  while (cut > 0 && (bytes[cut]! & 0xc0) === 0x80) cut--; // in the middle of a character
  const start = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, cut));
  return `${start}~${fnv1a(bytes).toString(16).padStart(16, "0")}`;
}

/** fnv1a is the FNV-1a hash of 64 bits. */
function fnv1a(bytes: Uint8Array): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const b of bytes) hash = BigInt.asUintN(64, (hash ^ BigInt(b)) * 0x100000001b3n);
  return hash;
}
