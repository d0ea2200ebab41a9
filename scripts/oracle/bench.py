"""Encodes texts with other libraries and says how much processor time it took.

A question is a JSON object on a line of standard input, its answer one on a line of
standard output.

    {"op": "load", "tokenizer": PATH, "tiktoken": B}
        the tokenizer.json to use from now on; with tiktoken set, also as an encoding
        of that library: {"versions": {LIBRARY: VERSION}}
    {"op": "texts", "path": PATH, "special": B}
        the texts to encode from now on, a JSON array of strings; special says that
        spellings of special tokens are those tokens
    {"op": "encode", "library": "tokenizers" or "tiktoken", "sum": B}
        encodes all texts on one thread: {"seconds": S, "ids": N}; with sum set, also
        {"sha256": H} of the ids of all texts, each with 32 bits, little-endian, and
        before those of each text their number

An answer that has an "error" has nothing else. Neither library is asked for more than
ids: making Python objects of what tokenizers returns does not count, the list that
tiktoken returns does.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import array
import hashlib
import importlib.metadata
import json
import sys
import time

import tiktoken
import tokenizers


def byte_alphabet():
    """Returns which byte a character of a byte-level vocabulary stands for."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{chr(b): b for b in visible}, **{chr(256 + i): b for i, b in enumerate(hidden)}}


def patterns(pre_tokenizer):
    """Returns the regular expressions that a pre-tokenizer splits by, in their order."""
    if pre_tokenizer["type"] == "Sequence":
        return [p for part in pre_tokenizer["pretokenizers"] for p in patterns(part)]
    if pre_tokenizer["type"] == "Split":
        return [pre_tokenizer["pattern"]["Regex"]]
    if pre_tokenizer["type"] == "ByteLevel" and not pre_tokenizer["use_regex"]:
        return []
    raise ValueError(f"pre_tokenizer: {pre_tokenizer['type']}: tiktoken cannot do that")


def encoding(path):
    """Returns a byte-level tokenizer.json as an encoding of tiktoken.

    Ids are taken for ranks. Several patterns that cut one after another become
    alternatives of one, which comes near.
    """
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    special = {a["content"]: a["id"] for a in data["added_tokens"]}
    alphabet = byte_alphabet()
    ranks = {}
    for token, i in data["model"]["vocab"].items():
        if token not in special and all(c in alphabet for c in token):
            ranks[bytes(alphabet[c] for c in token)] = i
    return tiktoken.Encoding(
        path, pat_str="|".join(patterns(data["pre_tokenizer"])), mergeable_ranks=ranks, special_tokens=special
    )


class Server:
    """Answers questions; each method named after an op takes the question."""

    def load(self, question):
        self.tokenizers = tokenizers.Tokenizer.from_file(question["tokenizer"])
        self.tokenizers.no_truncation()
        self.tokenizers.no_padding()
        self.tiktoken = encoding(question["tokenizer"]) if question["tiktoken"] else None
        return {"versions": {name: importlib.metadata.version(name) for name in ("tokenizers", "tiktoken")}}

    def texts(self, question):
        with open(question["path"], encoding="utf-8") as f:
            self.strings = json.load(f)
        self.special = question["special"]
        return {}

    def encode(self, question):
        encode = {"tokenizers": self.with_tokenizers, "tiktoken": self.with_tiktoken}[question["library"]]
        began = time.process_time()
        out = encode()
        seconds = time.process_time() - began
        lists = [e.ids for e in out] if question["library"] == "tokenizers" else out
        answer = {"seconds": seconds, "ids": sum(len(ids) for ids in lists)}
        if question["sum"]:
            sha = hashlib.sha256()
            for ids in lists:
                numbers = array.array("I", [len(ids), *ids])
                if sys.byteorder == "big":
                    numbers.byteswap()
                sha.update(numbers.tobytes())
            answer["sha256"] = sha.hexdigest()
        return answer

    def with_tokenizers(self):
        return self.tokenizers.encode_batch_fast(self.strings, add_special_tokens=False)

    def with_tiktoken(self):
        if self.special:
            return [self.tiktoken.encode(s, allowed_special="all") for s in self.strings]
        return [self.tiktoken.encode_ordinary(s) for s in self.strings]


def main():
    server = Server()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(server, question["op"])(question)
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
