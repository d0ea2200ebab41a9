"""Writes two small Unigram tokenizers and what the Hugging Face tokenizers library
(0.23.3) makes of texts with them:

- this directory, built as XLM-R's is: a charsmap, Metaspace, <s> and </s>, a <mask>
  that takes the space before it;
- ../unigram_bytes, with byte fallback, built as converted SentencePiece models are:
  the whole text is one piece, spaces are ▁.

The charsmap is compiled by sentencepiece (0.2.2) from a list of rules made here, so
that it is small: some of NFKC, and white space and invisible characters.

A row of golden.jsonl has the text, its ids without and with special tokens, and the
text of the ids, with special tokens and without.

    python gen.py
"""
import io
import json
import pathlib
import sys
import tempfile
import unicodedata

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))

import sentencepiece
from corpus import SENTENCES, texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def charsmap():
    """Returns a compiled charsmap, as the normalizer Precompiled wants it."""
    rules = {}
    singles = [0xA0, 0xAA, 0xB2, 0xB5, 0xBD, 0x2026, 0x2122, 0x212B, 0x2160, 0x3000, 0xFB01, 0xFB02, 0xFB03, 0x3392, 0x338F, 0x337F, 0xFF76, 0xFF77, 0xFF9E, 0x1D49C]
    singles += list(range(0xFF01, 0xFF5F)) + list(range(0x2460, 0x2470)) + list(range(0x2002, 0x200B))
    for c in singles:
        rules[chr(c)] = unicodedata.normalize("NFKC", chr(c))
    for base in "aeiouAEIOUcnåカキЕеИиА":
        for mark in "\u0300\u0301\u0302\u0303\u0308\u030a\u0327\u3099":
            composed = unicodedata.normalize("NFKC", base + mark)
            if len(composed) == 1:
                rules[base + mark] = composed
    rules["\uff76\uff9e"] = "ガ"
    for c in "\t\n\r\u0085\u2028":
        rules[c] = " "
    for c in "\u200b\u200e\ufeff\u00ad\u0001\u007f":
        rules[c] = ""
    with tempfile.TemporaryDirectory() as d:
        tsv = pathlib.Path(d) / "rules.tsv"
        spell = lambda s: " ".join(f"{ord(c):X}" for c in s)
        tsv.write_text("".join(f"{spell(k)}\t{spell(v)}\n" for k, v in sorted(rules.items())))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES), model_writer=model, model_type="char", vocab_size=600, hard_vocab_limit=False,
            normalization_rule_tsv=str(tsv), minloglevel=2)
    return field(field(model.getvalue(), 3), 2)


def field(message, number):
    """Returns the bytes of a field of an encoded protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            b = message[at]
            at += 1
            n |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return n

    while at < len(message):
        key = varint()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            varint()
        elif key & 7 == 2:
            size = varint()
        if key == number << 3 | 2:
            return message[at:at + size]
        at += size
    raise KeyError(number)


def train(t, size, special):
    t.train_from_iterator(SENTENCES, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False))
    return json.loads(t.to_str())


def write(folder, t):
    (folder / "tokenizer.json").write_text(t.to_str(pretty=True) + "\n")
    with open(folder / "golden.jsonl", "w") as f:
        for text in texts(400, 2):
            ids = t.encode(text, add_special_tokens=False).ids
            f.write(json.dumps({
                "text": text, "ids": ids, "ids_special": t.encode(text, add_special_tokens=True).ids,
                "decoded": t.decode(ids, skip_special_tokens=False), "decoded_skip": t.decode(ids, skip_special_tokens=True),
            }, ensure_ascii=False) + "\n")


def xlmr():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    train(t, 480, ["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return t


def with_bytes():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")  # words, to train on
    file = train(t, 460, ["<unk>", "<s>", "</s>"])
    vocab = file["model"]["vocab"]
    # Characters that are rare in the text leave the vocabulary and are spelled in bytes.
    rare = {c for c in set("".join(SENTENCES)) if "".join(SENTENCES).count(c) < 4 and ord(c) > 127}
    vocab = vocab[:3] + [[f"<0x{b:02X}>", 0.0] for b in range(256)] + [p for p in vocab[3:] if not rare & set(p[0])]
    file["model"].update(vocab=vocab, unk_id=0, byte_fallback=True)
    file["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(file))


write(here, xlmr())
write(here.parent / "unigram_bytes", with_bytes())
