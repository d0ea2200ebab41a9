"""Writes golden.jsonl: what the Hugging Face tokenizers library decodes.

Chains of decoders and small vocabularies are made up at random; a row holds the
decoder as in tokenizer.json, the tokens (the id is the index), the ids of the
special ones, ids to decode (some outside the vocabulary), and the text with and
without special tokens. Rows on which the library panics are left out.

    python gen.py ROWS SEED > golden.jsonl     (tokenizers 0.23.3)
"""
import json
import random
import sys

from tokenizers import Tokenizer

ROWS, SEED = int(sys.argv[1]), int(sys.argv[2])
rnd = random.Random(SEED)


def alphabet():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + n)
            n += 1
    return table


ALPHABET = alphabet()
CHARS = [" ", " ", "▁", "▁", "#", ".", "'", "n't", "a", "b", "ab", "s", "|", "é", "日", "🏳", "�", "</w>", "<0x", "41>", " do not", "."]


def text():
    return "".join(rnd.choice(CHARS) for _ in range(rnd.choice([0, 1, 1, 2, 2, 3, 4, 6])))


def spelled(data):
    return "".join(ALPHABET[b] for b in data)


def token(kind):
    k = rnd.random()
    if kind == "bytes" and k < 0.8:
        data = rnd.choice(["日本", "🏳️‍🌈", "é", " the", ".", "\n", "𠮷"]).encode()
        i = rnd.randrange(len(data))
        data = data[i:i + rnd.randrange(1, 5)]
        if rnd.random() < 0.2:
            data = bytes(rnd.choice([0x80, 0xC3, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF, 0x41]) for _ in range(rnd.randrange(1, 4)))
        return spelled(data)
    if kind == "fallback" and k < 0.7:
        b = rnd.choice("𠮷é日A".encode() + (b"\xff\x80" if rnd.random() < 0.3 else b""))
        return f"<0x{b:02X}>" if rnd.random() < 0.9 else rnd.choice([f"<0x{b:02x}>", "<0x+1>", "<0x4>", "<0xG1>"])
    if kind == "word" and k < 0.6:
        return "##" + text()
    if kind == "space" and k < 0.6:
        return "▁" + text()
    if kind == "suffix" and k < 0.6:
        return text() + "</w>"
    return text()


def pattern():
    if rnd.random() < 0.25:
        return {"Regex": rnd.choice(["a+", "[ ▁]", "(a|b)b?", "\\s+$", "^a", "b*"])}
    return {"String": rnd.choice(["▁", " ", "a", "aa", "aab", "ab", "b ", "##", "é"])}


def simple():
    return rnd.choice([
        lambda: {"type": "Replace", "pattern": pattern(), "content": rnd.choice(["", " ", "x", "▁", "ab", "$1"])},
        lambda: {"type": "Strip", "content": rnd.choice([" ", " ", "▁", "a", "é"]), "start": rnd.randrange(3), "stop": rnd.choice([0, 0, 1, 2])},
        lambda: {"type": "Metaspace", "replacement": rnd.choice(["▁", "a"]), "prepend_scheme": rnd.choice(["always", "first", "never"]), "split": True},
        lambda: {"type": "WordPiece", "prefix": rnd.choice(["##", "a", "##", ""]), "cleanup": rnd.random() < 0.5},
        lambda: {"type": "BPEDecoder", "suffix": rnd.choice(["</w>", "a", "</w>"])},
        lambda: {"type": "CTC", "pad_token": rnd.choice(["a", "##", ""]), "word_delimiter_token": "|", "cleanup": rnd.random() < 0.5},
        lambda: {"type": "ByteFallback"},
        lambda: {"type": "Fuse"},
        lambda: {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    ])()


SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def decoder():
    known = [
        ("bytes", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}),
        ("fallback", {"type": "Sequence", "decoders": [SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]}),
        ("fallback", {"type": "Sequence", "decoders": [SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
        ("space", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
        ("word", {"type": "WordPiece", "prefix": "##", "cleanup": True}),
        ("suffix", {"type": "BPEDecoder", "suffix": "</w>"}),
        ("any", None),
    ]
    if rnd.random() < 0.5:
        return rnd.choice(known)
    kind = rnd.choice(["bytes", "fallback", "word", "space", "suffix", "any"])
    chain = [simple() for _ in range(rnd.randrange(5))]
    if len(chain) == 1:
        return kind, chain[0]
    if len(chain) > 2 and rnd.random() < 0.2:
        chain[1:3] = [{"type": "Sequence", "decoders": chain[1:3]}]
    return kind, {"type": "Sequence", "decoders": chain}


def row():
    kind, dec = decoder()
    tokens = list(dict.fromkeys(token(kind) for _ in range(rnd.randrange(2, 12))))
    special = sorted(rnd.sample(range(len(tokens)), rnd.choice([0, 0, 1, min(2, len(tokens))])))
    special = [i for i in special if tokens[i]]
    t = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in special],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": dec,
        "model": {"type": "WordLevel", "vocab": {s: i for i, s in enumerate(tokens)}, "unk_token": tokens[0]},
    }))
    ids = []
    for _ in range(rnd.randrange(0, 20)):
        ids.append(rnd.choice(ids) if ids and rnd.random() < 0.15 else rnd.randrange(len(tokens) + (rnd.random() < 0.1)))
    return {"decoder": dec, "tokens": tokens, "special": special, "ids": ids,
            "text": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids, skip_special_tokens=True)}


n = 0
while n < ROWS:
    try:
        r = row()
    except BaseException as e:
        if type(e).__name__ != "PanicException":
            raise
        continue
    print(json.dumps(r, ensure_ascii=False))
    n += 1
