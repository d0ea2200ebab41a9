package oracletest

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize/hf"
)

var (
	textsFlag = flag.Int("oracle.texts", 100_000, "random texts per model")
	listsFlag = flag.Int("oracle.lists", 20_000, "random lists of ids per model")
	seedFlag  = flag.Uint64("oracle.seed", 1, "what the texts and lists are drawn with")
)

// batch is how many texts the library gets at once: enough for it to use all cores.
const batch = 5000

// maxShown is how many differences are shown of each kind.
const maxShown = 5

// ours is a batch as we see it.
type ours struct {
	texts     []string
	ids       [][]uint32
	all, some []string // decoded with special tokens and without
	err       error
}

func (b *ours) encode(tok *hf.Tokenizer) {
	for _, text := range b.texts {
		ids, err := tok.Encode(nil, []byte(text), true)
		if err != nil {
			b.err = fmt.Errorf("encode %q: %w", text, err)
			return
		}
		b.ids = append(b.ids, ids)
	}
	b.decode(tok)
}

func (b *ours) decode(tok *hf.Tokenizer) {
	for _, ids := range b.ids {
		b.all = append(b.all, string(tok.DecodeText(nil, ids, false)))
		b.some = append(b.some, string(tok.DecodeText(nil, ids, true)))
	}
}

// TestLibrary compares, for each model, ids of random texts with the library's, the
// texts that they lead back to, and what random lists of ids lead to.
func TestLibrary(t *testing.T) {
	for _, family := range Families {
		t.Run(family, func(t *testing.T) {
			oracle, tok := open(t, family)
			compareTexts(t, oracle, tok, NewTexts(*seedFlag, Specials(t, Path(t, family))))
			compareLists(t, oracle, tok, rand.New(rand.NewPCG(*seedFlag, 1)))
		})
	}
}

// compareTexts compares texts, batch by batch: we work on the next one while the
// library does on this one. It ends the test with the first batch that differs.
func compareTexts(t *testing.T, oracle *Oracle, tok *hf.Tokenizer, source *Texts) {
	ahead := make(chan *ours)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(ahead)
		for left := *textsFlag; left > 0; left -= batch {
			b := &ours{}
			for range min(left, batch) {
				b.texts = append(b.texts, source.Next())
			}
			b.encode(tok)
			select {
			case ahead <- b:
			case <-stop:
				return
			}
		}
	}()
	framed := false
	for b := range ahead {
		if b.err != nil {
			t.Fatal(b.err)
		}
		if !framed {
			compareFrame(t, oracle, tok, b)
			framed = true
		}
		compareIDs(t, oracle, tok, b)
		compareDecoded(t, oracle, b)
		if t.Failed() {
			t.Fatalf("seed %d", *seedFlag)
		}
	}
}

// compareLists compares what lists of ids lead to. No text leads to most of them;
// some have ids that do not exist.
func compareLists(t *testing.T, oracle *Oracle, tok *hf.Tokenizer, rng *rand.Rand) {
	for left := *listsFlag; left > 0; left -= batch {
		b := &ours{}
		for range min(left, batch) {
			ids := make([]uint32, rng.IntN(20))
			few := rng.IntN(2) == 0 // small ids are where bytes are
			for i := range ids {
				ids[i] = rng.Uint32N(uint32(tok.Size() + 10))
				if few && rng.IntN(3) > 0 {
					ids[i] = rng.Uint32N(1300)
				}
			}
			b.ids = append(b.ids, ids)
		}
		b.decode(tok)
		compareDecoded(t, oracle, b)
		if t.Failed() {
			t.Fatalf("seed %d", *seedFlag)
		}
	}
}

func open(t *testing.T, family string) (*Oracle, *hf.Tokenizer) {
	t.Helper()
	oracle, path := Start(t), Path(t, family)
	oracle.Load(path)
	tok, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return oracle, tok
}

func compareIDs(t *testing.T, oracle *Oracle, tok *hf.Tokenizer, b *ours) {
	t.Helper()
	var differ []string
	for i, want := range oracle.Encode(b.texts, false) {
		if !slices.Equal(b.ids[i], want) {
			differ = append(differ, b.texts[i])
		}
	}
	if len(differ) == 0 {
		return
	}
	t.Errorf("%d of %d texts have other ids", len(differ), len(b.texts))
	slices.SortFunc(differ, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	for _, text := range differ[:min(maxShown, len(differ))] {
		text = shrink(text, func(s string) bool {
			got, err := tok.Encode(nil, []byte(s), true)
			return err != nil || !slices.Equal(got, oracle.Encode([]string{s}, false)[0])
		})
		got, err := tok.Encode(nil, []byte(text), true)
		t.Errorf("ids of %+q\n got %v %v\nwant %v", text, got, err, oracle.Encode([]string{text}, false)[0])
	}
}

func compareFrame(t *testing.T, oracle *Oracle, tok *hf.Tokenizer, b *ours) {
	t.Helper()
	before, after := tok.Frame()
	for i, want := range oracle.Encode(b.texts, true) {
		if got := slices.Concat(before, b.ids[i], after); !slices.Equal(got, want) {
			t.Errorf("ids of %+q in their frame\n got %v\nwant %v", b.texts[i], got, want)
			return
		}
	}
}

func compareDecoded(t *testing.T, oracle *Oracle, b *ours) {
	t.Helper()
	for _, c := range []struct {
		name string
		skip bool
		got  []string
	}{{"all of", false, b.all}, {"without special tokens", true, b.some}} {
		shown := 0
		for i, want := range oracle.Decode(b.ids, c.skip) {
			if c.got[i] == want {
				continue
			}
			if shown++; shown <= maxShown {
				t.Errorf("text of %v, %s\n got %+q\nwant %+q", b.ids[i], c.name, c.got[i], want)
			}
		}
		if shown > 0 {
			t.Errorf("%d of %d lists have another text, %s", shown, len(b.ids), c.name)
		}
	}
}

// shrink returns a text that is bad, too, and from which, in all likelihood, nothing
// can be left out.
func shrink(text string, bad func(string) bool) string {
	runes := []rune(text)
	tries := 0
	for size := len(runes) / 2; size > 0 && tries < 2000; {
		smaller := false
		for i := 0; i+size <= len(runes); {
			tries++
			if rest := slices.Concat(runes[:i], runes[i+size:]); bad(string(rest)) {
				runes, smaller = rest, true
			} else {
				i += size
			}
		}
		if !smaller || size > len(runes) {
			size /= 2
		}
	}
	return string(runes)
}

func TestShrink(t *testing.T) {
	bad := func(s string) bool {
		a, b := slices.Index([]rune(s), 'x'), slices.Index([]rune(s), '中')
		return a >= 0 && b > a
	}
	if got := shrink("abcxde x 中xf中 more", bad); got != "x中" {
		t.Errorf("got %q", got)
	}
}

func TestNewTexts(t *testing.T) {
	a, b := NewTexts(7, []string{"<|end|>"}), NewTexts(7, []string{"<|end|>"})
	long, empty := 0, 0
	for range 20_000 {
		text := a.Next()
		if other := b.Next(); text != other {
			t.Fatalf("the same seed gives %q and %q", text, other)
		}
		if !utf8.ValidString(text) {
			t.Fatalf("not UTF-8: %q", text)
		}
		switch n := utf8.RuneCountInString(text); {
		case n == 0:
			empty++
		case n > 4900:
			long++
		case n > 200:
			t.Errorf("%d characters", n)
		}
	}
	if long == 0 || empty == 0 {
		t.Errorf("%d long texts and %d empty ones", long, empty)
	}
}

// TestRender asks the oracle about templates, to know that it is set up as chat
// templates expect.
func TestRender(t *testing.T) {
	oracle := Start(t)
	for _, tt := range []struct{ template, variables, want string }{
		{"  {% if true %}\nx\n  {% endif %}\n", `{}`, "x\n"},
		{"{{ a | tojson }}", `{"a":{"z":1.0,"b":"<é>"}}`, `{"z": 1.0, "b": "<é>"}`},
		{"{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m }}{% endfor %}", `{"messages":["a","b"]}`, "a"},
		{"{% generation %}x{% endgeneration %}", `{}`, "x"},
		{"{{ nothing }}", `{}`, ""},
	} {
		if got, err := oracle.Render(tt.template, json.RawMessage(tt.variables)); err != nil || got != tt.want {
			t.Errorf("%q: %q, %v, want %q", tt.template, got, err, tt.want)
		}
	}
	if got, err := oracle.Render("{{ raise_exception('no') }}", json.RawMessage(`{}`)); err == nil {
		t.Errorf("no error but %q", got)
	}
}
