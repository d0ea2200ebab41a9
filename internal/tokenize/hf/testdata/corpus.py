"""Text to train small vocabularies on, and texts to try them with.

All of it was written for this purpose.
"""
import random

SENTENCES = """
The router keeps a list of the engines and what each of them has in its cache.
A request goes where its prefix is already known, unless that engine is too busy.
When an engine restarts, its cache is empty, and the list says so after a moment.
Nobody likes to wait for the first token; everybody likes to see the rest of them come quickly.
She said it wouldn't work, but it's working, and they've been using it since Tuesday.
I'm not sure that you're right: the queue was full at 10:45, not at 11.
Is there a limit? There is, and it doesn't depend on the number of workers.
The old miller counted sacks: one hundred and seven of flour, twelve of oats, three of rye.
He walked along the river until the road ended, and then he walked on without a road.
In winter the harbour freezes and the boats are pulled ashore with ropes and horses.
Tokens are counted, blocks are hashed, hashes are compared, and the longest match wins.
Measure first, then change one thing, then measure again and write down both numbers.
Bread, salt, onions, a little oil: that was supper, and nobody at the table complained.
The number of tokens in a prompt is larger than the number of words, usually by a third.
func main() { fmt.Println("hello, world") } // a program everybody has written once
for i := 0; i < len(list); i++ { total += list[i].tokens * 2 }
if err != nil { return fmt.Errorf("open %s: %w", name, err) }
def tokenize(text): return [piece for piece in split(text) if piece.strip()]
SELECT name, count(*) FROM requests WHERE status = 200 GROUP BY name ORDER BY 2 DESC;
{"model": "small", "messages": [{"role": "user", "content": "Hello!"}], "stream": true}
https://example.org/path/to/page?query=tokens&limit=100#results
Der Müller zählte die Säcke, während draußen der Wind über die Felder ging.
Die Brücke über den Fluss ist schmal, aber sie trägt auch schwere Wagen.
Das Café am Marktplatz öffnet um acht und schließt, wenn die letzten Gäste gehen.
Le garçon a mangé une pomme près de la fenêtre, où l'on voyait déjà la neige.
L'été dernier, nous avons traversé la forêt à pied, sans carte et sans boussole.
El niño corrió hacia la montaña mientras la señora esperaba en el jardín.
A água do rio estava fria, mas as crianças não quiseram esperar pelo verão.
Мельник считал мешки и смотрел, как снег ложится на крышу старого дома.
Весной лёд на реке трещит, и лодки снова спускают на воду.
水車の音が聞こえる朝、少年は川に沿って歩いた。
今日は天気がいいので、窓を開けて仕事をします。
磨坊主数着麻袋,外面的风吹过田野。
我们先测量,再改动一处,然后再测量一次。
방앗간 주인은 자루를 세고 강가의 아이들은 물을 길었다.
كان الطحان يعد الأكياس بينما كانت الريح تعبر الحقول.
ο μυλωνάς μετρούσε τα σακιά και ο άνεμος περνούσε από τα χωράφια
चक्की वाला बोरियाँ गिन रहा था और हवा खेतों से गुज़र रही थी।
Numbers: 0 1 2 3 10 42 100 1000 65536 3.14159 1,000,000 -7 1e9 0x1F 50% $5 €20 £3
Weather: 21.5 °C, wind 12 km/h, humidity 40 %, pressure 1013 hPa, sunrise 06:12
It is late; the lamp burns low, the letters blur, and the page is not yet full.
""".strip().split("\n")

NASTY = [
    "", " ", "  ", "\n", "\t", " a", "a ", "  a  b  ", "a\nb", "a\r\nb", "\u00a0a\u00a0b", "\u3000", "a\u3000b", "\u200b", "a\u200bb", "\ufeffa",
    "don't", "DON'T", "it's 'quoted'", "'s", "n't", "``x''", "e.g.", "...", "?!", "(a)", "[b]", "{c}", "a-b", "a_b", "a/b", "#a", "##a", "## a", "@@", "a##b",
    "naïve café", "nai\u0308ve cafe\u0301", "ÀÉÎÕÜ", "Straße", "ŒUVRE", "ǅ", "İstanbul", "ıI", "ΑΣ ΑΣΑ", "Å\u030a", "\u0301", "a\u0301\u0323", "ﬁ ﬂ ﬃ", "①②③", "½ ¼", "ＡＢＣ１２３", "㎏ ㍿", "x² y₃", "™®©",
    "日本語", "日本 語", "水車の音", "磨坊主", "한국어", "방앗간", "\u1112\u1161\u11ab", "一二三abc", "㐀㐁", "豈", "𠮷野家", "𪜀", "ｶﾞｷﾞ", "ガギ", "カ\u3099",
    "😀", "👍🏽", "🏳️‍🌈", "👨‍👩‍👧", "a😀b", "𝒜𝓑", "\U0010ffff", "\ue000", "\u0000", "a\u0000b", "\u0001", "\x7f", "\u0085", "\ufffd", "a\ufffdb", "\u00ad", "co\u00adop",
    "кириллица", "Ёлка ёлка", "العربية", "كتاب\u064f", "हिन्दी", "ไทย", "עברית", "ελληνικά", "ᚠᚢᚦ", "\u0531\u0532",
    "▁", "▁a", "a▁b", "▁▁", " ▁ ", "<0x41>", "<0xE4><0xBD><0xA0>", "<unk>", "<s>", "</s>", "<pad>", "<mask>", "a<mask>b", "a <mask> b", "a  <mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "a[MASK]b", " [MASK] ", "[mask]",
    "x" * 50, "a" * 99, "a" * 100, "a" * 101, "é" * 100, "é" * 101, "日" * 120, "zq" * 60, "1" * 40, "supercalifragilisticexpialidocious", "unaffable", "a" * 400,
    "1234567890", "3.14", "1,000", "10:45", "$5.00", "50%", "\u0663\u0664", "Ⅳ", "\u2460",
]


def texts(rows, seed):
    """The sentences, the nasty ones, and random mixtures of both."""
    rnd = random.Random(seed)
    out = list(dict.fromkeys(SENTENCES + NASTY))
    words = " ".join(SENTENCES).split()
    while len(out) < rows:
        k = rnd.random()
        if k < 0.4:
            t = rnd.choice([" ", " ", "  ", "\n"]).join(rnd.choice(words) for _ in range(rnd.randrange(1, 12)))
        elif k < 0.7:
            t = "".join(rnd.choice([rnd.choice(NASTY), rnd.choice(words), " "]) for _ in range(rnd.randrange(1, 6)))
        elif k < 0.85:
            w = list(rnd.choice(SENTENCES)[:40])
            rnd.shuffle(w)
            t = "".join(w)
        else:
            t = "".join(chr(rnd.choice([rnd.randrange(0x20, 0x7F), rnd.randrange(0xA0, 0x250), rnd.randrange(0x300, 0x600), rnd.randrange(0x2000, 0x2100), rnd.randrange(0x3040, 0x3100), rnd.randrange(0x4E00, 0x4F00), rnd.randrange(0xFF00, 0xFFF0), rnd.randrange(0x1F300, 0x1F650)])) for _ in range(rnd.randrange(1, 12)))
        if len(t) < 500:
            out.append(t)
    return out
