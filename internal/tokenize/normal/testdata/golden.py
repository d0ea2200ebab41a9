"""Writes golden.jsonl and blocks.jsonl: what the tokenizers library makes of text.

Run it in this directory, with tokenizers 0.23.3 from PyPI:

    python golden.py

golden.jsonl has a normalizer per line and pairs of made-up input and its output.
blocks.jsonl has a normalizer per line and CRC-32s by the first of 4,096 code
points, over the output for a text with all of them in some surroundings.
"""

import base64
import json
import random
import struct
import unicodedata
import zlib

from tokenizers import Tokenizer

EMPTY = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
}


def normalizer(spec):
    return Tokenizer.from_str(json.dumps({**EMPTY, "normalizer": spec})).normalizer


def charsmap(mapping):
    """A SentencePiece character map: double-array trie, then the replacements."""
    texts, root = b"", {}
    for key, text in mapping.items():
        node = root
        for b in key.encode():
            node = node.setdefault(b, {})
        node[-1] = len(texts)
        texts += text.encode() + b"\0"
    units, used, bases = {}, {0}, set()

    def place(node, at, label):
        labels = [max(b, 0) for b in node]
        offset = 1
        while at ^ offset in bases or any(at ^ offset ^ b in used for b in labels):
            offset += 1
        bases.add(at ^ offset)
        used.update(at ^ offset ^ b for b in labels)
        units[at] = offset << 10 | (-1 in node) << 8 | label
        for b, child in node.items():
            if b < 0:
                units[at ^ offset] = child | 1 << 31
            else:
                place(child, at ^ offset ^ b, b)

    place(root, 0, 0)
    trie = [units.get(i, 0) for i in range((max(units) | 255) + 1)]
    blob = struct.pack("<I", 4 * len(trie)) + struct.pack(f"<{len(trie)}I", *trie) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def bert(clean, chinese, accents, lower):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese,
            "strip_accents": accents, "lowercase": lower}


def string(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def regex(old, new):
    return {"type": "Replace", "pattern": {"Regex": old}, "content": new}


def plain(*types):
    return [{"type": t} for t in types]


def strip(left, right):
    return {"type": "Strip", "strip_left": left, "strip_right": right}


PREPEND = {"type": "Prepend", "prepend": "▁"}

# Characters of one kind each; a row draws from a few kinds.
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORY = {}
for c in CODES:
    CATEGORY.setdefault(unicodedata.category(chr(c)), []).append(c)
DECOMPOSING = [c for c in CODES if unicodedata.decomposition(chr(c))]
CANONICAL = [c for c in DECOMPOSING if unicodedata.decomposition(chr(c))[0] != "<"]
PARTS = sorted({ord(x) for c in CANONICAL for x in unicodedata.normalize("NFD", chr(c))})
MARKS = [c for c in CODES if unicodedata.combining(chr(c))]
LATER = [0x7FD, 0x898, 0x9FE, 0x1715, 0x1ABF, 0x1DF6, 0x1E08F, 0x1E4EC, 0x11930, 0x11935, 0x11938, 0x32FF, 0x1E030]
JAMO = [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), 0x1113, 0x1176, 0x11C3]
HANGUL = [*range(0xAC00, 0xD7A4, 7), *range(0xAC00, 0xD7A4, 28)]
SPACES = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
CJK = [*range(0x4E00, 0x4E20), 0x3400, 0x4DBF, 0x9FFF, 0xA000, 0xF900, 0x20000, 0x2A6E0, 0x2B820, 0x2CEB0, 0x2F800]
UPPER = [c for c in CODES if chr(c).lower() != chr(c)] + [0x1C89, 0xA7CB, 0xA7DC, 0x10D50, 0x16EA0]
LATIN = [*range(0xA0, 0x180)]
ASCII = [*range(0x20, 0x7F)]
FEW = [0x41, 0x65, 0x300, 0x301, 0x316, 0x323, 0x327, 0x334, 0x345]
EMOJI = [0xA9, 0x1F1E6, 0x1F1FA, 0x1F468, 0x1F3FD, 0x2764, 0xFE0F, 0x200D, 0x200C]
INDIC = [0x915, 0x958, 0x93C, 0x94D, 0x903, 0x995, 0x9BC, 0x9CD, 0x600, 0xE33, 0x301]
ANY = [ASCII, CODES, DECOMPOSING, CANONICAL, PARTS, MARKS, LATER, JAMO, HANGUL, SPACES, CJK, UPPER, LATIN, FEW,
       EMOJI, INDIC, CATEGORY["Cc"], CATEGORY["Cf"], CATEGORY["Mn"], CATEGORY["Mc"], CATEGORY["Me"]]
FORMS = [FEW, FEW, DECOMPOSING, CANONICAL, CANONICAL, PARTS, PARTS, MARKS, LATER, JAMO, HANGUL, ASCII]
CLUSTERS = [EMOJI, EMOJI, INDIC, INDIC, FEW, JAMO, HANGUL, [10, 13], ASCII, CATEGORY["Mc"], CATEGORY["Cf"]]
ENDS = [SPACES, SPACES, [0x61], LATIN]
LETTERS = [[32], [0x61], [0x62], LATIN]


def text(kinds):
    kinds = random.sample(kinds, random.choice([1, 2, 3]))
    return "".join(chr(random.choice(random.choice(kinds))) for _ in range(random.choice([1, 2, 3, 4, 6, 9, 17])))


def random_map():
    kinds = random.choice([CLUSTERS, ANY])
    keys = {text(kinds)[:random.choice([1, 1, 2, 3])].replace("\0", "") for _ in range(20)} - {""}
    return charsmap({k: text(ANY)[:random.choice([0, 1, 1, 2])].replace("\0", "") for k in sorted(keys)}), \
        CLUSTERS + [[ord(c) for k in sorted(keys) for c in k]] * 5


def cases():
    yield from ((spec, FORMS) for spec in plain("NFC", "NFD", "NFKC", "NFKD"))
    yield from ((spec, ANY) for spec in plain("NFC", "NFKC", "Lowercase", "StripAccents", "Nmt", "ByteLevel"))
    for accents in (None, True, False):
        for lower in (True, False):
            yield bert(True, True, accents, lower), ANY
    yield bert(True, False, False, False), ANY
    yield bert(False, True, False, False), ANY
    yield from ((strip(*sides), ENDS) for sides in ((True, True), (True, False), (False, True), (False, False)))
    yield PREPEND, ANY
    for old, new in ((" ", "▁"), (" ", ""), ("a", "12345678"), ("a", "123456789"), ("aa", "b"), ("ab", "$0"), ("", "é"), (".", "-")):
        yield string(old, new), LETTERS
    for old, new in ((" {2,}", " "), ("a*", "x"), ("$", "x"), ("", "é"), (r"\s", "\\0"), (r"(?<=a)b|[^\x00-\x7f]", "")):
        yield regex(old, new), LETTERS
    yield sequence(PREPEND, string(" ", "▁")), LETTERS
    yield sequence(*plain("NFD", "StripAccents", "Lowercase"), strip(True, True)), ANY
    yield sequence(*plain("Nmt"), sequence(*plain("NFKC")), string("  ", " "), PREPEND), ANY
    for _ in range(8):
        yield random_map()


def rows(spec, kinds):
    n, out = normalizer(spec), [["", normalizer(spec).normalize_str("")]]
    while len(out) < 30:
        source = text(kinds)
        result = n.normalize_str(source)
        if result != source or random.random() < 0.2:
            out.append([source, result])
    return out


# Where characters have properties, and samples of where they have none.
BLOCKS = [0x0, 0x1, 0x2, 0x3, 0x4, 0x9, 0xA, 0xB, 0xD, 0xE, 0xF, 0x10, 0x11, 0x13, 0x16, 0x1B, 0x1D, 0x1E, 0x1F,
          0x20, 0x2A, 0x2B, 0x2C, 0x2F, 0xE0, 0xF0, 0x10F]


def around(c):
    c = chr(c)
    return f"{c}|e\u0323{c}\u0316\u0301|{c}a\u0915{c}\u200d{c}\u0301\n"


def blocks(spec):
    n = normalizer(spec)
    for first in (block << 12 for block in BLOCKS):
        source = "".join(around(c) for c in range(first, first + 0x1000) if not 0xD800 <= c < 0xE000)
        yield f"{first:X}", f"{zlib.crc32(n.normalize_str(source).encode()):08x}"


def main():
    random.seed(20)
    with open("golden.jsonl", "w") as f:
        for spec, kinds in cases():
            print(json.dumps({"normalizer": spec, "rows": rows(spec, kinds)}), file=f)
    with open("blocks.jsonl", "w") as f:
        for spec in plain("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt") + [
                bert(True, True, True, True), bert(True, False, False, False),
                charsmap({"a": "X", "\u0301": "Y", "\u0915": "Z", "\u200d": "J"})]:
            print(json.dumps({"normalizer": spec, "crc32": dict(blocks(spec))}), file=f)


main()
