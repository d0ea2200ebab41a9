"""Writes golden.jsonl: what the Hugging Face tokenizers library makes of words.

Small vocabularies are made up at random, with many equal scores. A row is a model
(Unigram: pieces with scores, unk, byte_fallback; WordPiece: tokens, unk, prefix,
max_chars) and texts with their ids, null where the library refuses.

    python gen.py ROWS SEED > golden.jsonl     (tokenizers 0.23.3)
"""
import json
import random
import sys

from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece

ROWS, SEED = int(sys.argv[1]), int(sys.argv[2])
rnd = random.Random(SEED)
LETTERS = ["a", "b", "c", "ab", "é", "日", "🏳", "▁", "#", "<unk>", "x"]


def word(most, letters=LETTERS):
    return "".join(rnd.choice(letters) for _ in range(rnd.randrange(1, most + 1)))


def unigram():
    letters = rnd.sample(LETTERS, rnd.randrange(1, 7))
    pieces = [(word(rnd.choice([1, 2, 2, 3, 4]), letters), rnd.choice([-1.0, -1.0, -2.0, -2.0, -3.0, -0.5, -4.25, -rnd.random() * 9, rnd.choice([-1, -1, 30.0])]))
              for _ in range(rnd.randrange(1, 30))]
    fallback = rnd.random() < 0.4
    if fallback:
        have = range(256) if rnd.random() < 0.6 else sorted(set("abcé日".encode()))
        pieces += [(f"<0x{b:02X}>", rnd.choice([0.0, -3.0])) for b in have]
    if rnd.random() < 0.7:
        pieces.insert(0, ("<unk>", rnd.choice([0.0, -5.0])))
    unk = rnd.choice([0, 0, 0, 0, rnd.randrange(len(pieces)), None])
    t = Tokenizer(Unigram(pieces, unk, fallback))
    return {"pieces": pieces, "unk": -1 if unk is None else unk, "byte_fallback": fallback}, t, letters


def wordpiece():
    letters = rnd.sample(LETTERS, rnd.randrange(1, 7))
    prefix = rnd.choice(["##", "##", "#", "", "ab"])
    tokens = {"[UNK]": 0} if rnd.random() < 0.8 else {"[X]": 0}
    for _ in range(rnd.randrange(1, 30)):
        tokens.setdefault(rnd.choice(["", prefix]) + word(3, letters), len(tokens))
    most = rnd.choice([0, 3, 6, 100])
    t = Tokenizer(WordPiece(tokens, unk_token="[UNK]", max_input_chars_per_word=most))
    t.model.continuing_subword_prefix = prefix
    return {"tokens": list(tokens), "unk_token": "[UNK]", "prefix": prefix, "max_chars": most}, t, letters


def encode(t, text):
    try:
        return t.encode(text, add_special_tokens=False).ids
    except Exception:
        return None


for _ in range(ROWS):
    row, t, letters = rnd.choice([unigram, wordpiece])()
    texts = [word(rnd.choice([1, 3, 8, 20]), rnd.choice([LETTERS, letters, letters])) for _ in range(20)]
    row["texts"] = [[s, encode(t, s)] for s in texts]
    print(json.dumps(row, ensure_ascii=False))
