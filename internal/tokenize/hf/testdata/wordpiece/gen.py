"""Writes tokenizer.json, a small WordPiece tokenizer built as BERT's are, and
golden.jsonl: what the Hugging Face tokenizers library (0.23.3) makes of texts.

A row has the text, its ids without and with special tokens, and the text of the
ids, with special tokens and without.

    python gen.py
"""
import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))

from corpus import SENTENCES, texts
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
t.decoder = decoders.WordPiece(prefix="##", cleanup=True)
t.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=420, min_frequency=2, limit_alphabet=90, special_tokens=SPECIAL))
t.post_processor = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
(here / "tokenizer.json").write_text(t.to_str(pretty=True) + "\n")

with open(here / "golden.jsonl", "w") as f:
    for text in texts(400, 1):
        ids = t.encode(text, add_special_tokens=False).ids
        f.write(json.dumps({
            "text": text, "ids": ids, "ids_special": t.encode(text, add_special_tokens=True).ids,
            "decoded": t.decode(ids, skip_special_tokens=False), "decoded_skip": t.decode(ids, skip_special_tokens=True),
        }, ensure_ascii=False) + "\n")
