package simengine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSGLangConfig(t *testing.T) {
	e, err := New(Config{Kind: SGLang})
	if err != nil {
		t.Fatal(err)
	}
	want := SGLangConfig{Policy: FIFO, MaxPrefillTokens: 16384, ChunkedPrefillSize: 8192, ClipMaxNewTokens: 4096, Conservativeness: 1}
	if diff := cmp.Diff(want, e.Config().SGLang); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		name string
		page int
		cfg  SGLangConfig
		want string // of the error
	}{
		{"policies", 0, SGLangConfig{Policy: FCFS}, ""},
		{"unknown policy", 0, SGLangConfig{Policy: "sjf"}, `sglang policy: expected one of ["fifo" "fcfs" "lpm"], got "sjf"`},
		{"prefill tokens", 0, SGLangConfig{MaxPrefillTokens: -1}, "sglang max prefill tokens: expected at least 1, got -1"},
		{"clip", 0, SGLangConfig{ClipMaxNewTokens: -1}, "sglang clip max new tokens: expected at least 1, got -1"},
		{"chunk of pages", 16, SGLangConfig{ChunkedPrefillSize: 48}, ""},
		{"chunk between pages", 16, SGLangConfig{ChunkedPrefillSize: 40}, "sglang chunked prefill size: expected a multiple of the block size 16, got 40"},
		{"page that does not divide the default chunk", 48, SGLangConfig{}, ""},
		{"page above the default chunk", 10000, SGLangConfig{}, ""},
		{"conservativeness", 0, SGLangConfig{Conservativeness: 0.3}, ""},
		{"too conservative", 0, SGLangConfig{Conservativeness: 1.1}, "sglang conservativeness: expected a number from 0 to 1, got 1.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(Config{Kind: SGLang, BlockSize: tc.page, SGLang: tc.cfg})
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "simengine: ")
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
	if _, err := New(Config{Kind: VLLM, SGLang: SGLangConfig{Policy: "sjf"}}); err != nil {
		t.Errorf("an engine of another kind: %v", err)
	}
}

// sglAsk is a request of a table, of tokens that share nothing.
type sglAsk struct {
	name           string
	prompt, output int
}

func TestSGLangBudgets(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		asks []sglAsk
		want []string
	}{
		{
			name: "a prompt in chunks",
			cfg:  Config{BlockSize: 4, SGLang: SGLangConfig{ChunkedPrefillSize: 8}},
			asks: []sglAsk{{"a", 18, 2}},
			want: []string{"a+0 compute 8", "compute 8", "compute 2 -> a", "-> a."},
		},
		{
			name: "what is left of a chunk is used",
			cfg:  Config{BlockSize: 2, SGLang: SGLangConfig{ChunkedPrefillSize: 8}},
			asks: []sglAsk{{"a", 5, 2}, {"b", 6, 1}, {"c", 4, 1}},
			want: []string{"a+0 b+0 compute 7 -> a", "c+0 compute 8 -> a. b. c."},
		},
		{
			name: "mocker: a prompt that fits no more waits",
			cfg:  Config{Rules: Mocker, BlockSize: 2, SGLang: SGLangConfig{ChunkedPrefillSize: 8}},
			asks: []sglAsk{{"a", 5, 2}, {"b", 6, 1}, {"c", 2, 1}},
			want: []string{"a+0 compute 5 -> a", "b+0 c+0 compute 8 -> a. b. c."},
		},
		{
			name: "mocker: a prompt longer than any chunk takes what is left",
			cfg:  Config{Rules: Mocker, BlockSize: 2, SGLang: SGLangConfig{ChunkedPrefillSize: 8}},
			asks: []sglAsk{{"a", 5, 2}, {"b", 10, 1}},
			want: []string{"a+0 b+0 compute 7 -> a", "compute 8 -> a. b."},
		},
		{
			name: "prompt tokens in a pass",
			cfg:  Config{SGLang: SGLangConfig{MaxPrefillTokens: 10}},
			asks: []sglAsk{{"a", 6, 1}, {"b", 4, 1}, {"c", 5, 1}, {"d", 6, 1}},
			want: []string{"a+0 b+0 compute 10 -> a. b.", "c+0 compute 5 -> c.", "d+0 compute 6 -> d."},
		},
		{
			name: "the first prompt of a pass may be longer",
			cfg:  Config{SGLang: SGLangConfig{MaxPrefillTokens: 10}},
			asks: []sglAsk{{"a", 12, 1}, {"b", 1, 1}},
			want: []string{"a+0 compute 12 -> a.", "b+0 compute 1 -> b."},
		},
		{
			name: "prompts unbroken",
			cfg:  Config{NoChunkedPrefill: true, SGLang: SGLangConfig{ChunkedPrefillSize: 8, MaxPrefillTokens: 30}},
			asks: []sglAsk{{"a", 20, 1}, {"b", 10, 1}, {"c", 40, 1}},
			want: []string{"a+0 b+0 compute 30 -> a. b.", "c+0 compute 40 -> c."},
		},
		{
			name: "requests in a pass",
			cfg:  Config{MaxSeqs: 2},
			asks: []sglAsk{{"a", 3, 2}, {"b", 3, 1}, {"c", 3, 1}},
			want: []string{"a+0 b+0 compute 6 -> a b.", "c+0 compute 3 -> a. c."},
		},
		{
			name: "mocker: any number of requests in a pass",
			cfg:  Config{Rules: MockerGated, MaxSeqs: 2},
			asks: []sglAsk{{"a", 3, 2}, {"b", 3, 1}, {"c", 3, 1}},
			want: []string{"a+0 b+0 c+0 compute 9 -> a b. c.", "-> a."},
		},
		{
			name: "room for the answer",
			cfg:  Config{Blocks: 20},
			asks: []sglAsk{{"a", 5, 3}, {"b", 5, 5}},
			// Of the pool, a has 5 pages and 3 reserved: 12 are left.
			want: []string{"a+0 b+0 compute 10 -> a b"},
		},
		{
			name: "no room for the answer",
			cfg:  Config{Blocks: 20},
			asks: []sglAsk{{"a", 5, 3}, {"b", 5, 7}},
			want: []string{"a+0 compute 5 -> a", "b+0 compute 5 -> a b", "-> a. b"},
		},
		{
			name: "room for the answer up to the clip",
			cfg:  Config{Blocks: 20, SGLang: SGLangConfig{ClipMaxNewTokens: 6}},
			asks: []sglAsk{{"a", 5, 3}, {"b", 5, 7}},
			want: []string{"a+0 b+0 compute 10 -> a b"},
		},
		{
			name: "room left by the watermark",
			cfg:  Config{Blocks: 20, Watermark: 0.1},
			asks: []sglAsk{{"a", 5, 3}, {"b", 5, 5}},
			want: []string{"a+0 compute 5 -> a", "b+0 compute 5 -> a b"},
		},
		{
			name: "alone there is always room",
			cfg:  Config{Blocks: 20, Watermark: 0.5},
			asks: []sglAsk{{"a", 18, 100}, {"b", 1, 1}},
			want: []string{"a+0 compute 18 -> a", "-> a", "-> a.", "b+0 compute 1 -> b."},
		},
		{
			name: "requests that can never run",
			cfg:  Config{Blocks: 4, BlockSize: 2, MaxModelLen: 7},
			asks: []sglAsk{{"a", 9, 1}, {"b", 0, 1}, {"c", 7, 1}, {"d", 5, 0}, {"e", 6, 9}},
			want: []string{"e+0 compute 6 a rejected b rejected c rejected d rejected -> e."},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newSGLRig(t, tc.cfg)
			for _, a := range tc.asks {
				g.asks(a.name, a.prompt, a.output)
			}
			g.steps(tc.want...)
		})
	}
}

// TestSGLangReserve walks along the edge of what is reserved for a running answer.
func TestSGLangReserve(t *testing.T) {
	for _, tc := range []struct {
		name             string
		conservativeness float64
		output           int
		admitted         bool
	}{
		// With 10 pages of the pool's 100 used, 49 tokens to come, and the ratio
		// one step below 0.7, what is left is 90 - 34.25.
		{"55 of 55.7", 1, 45, true},
		{"56 of 55.7", 1, 46, false},
		// With half of that ratio it is 90 - 17.13.
		{"72 of 72.9", 0.5, 62, true},
		{"73 of 72.9", 0.5, 63, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newSGLRig(t, Config{Blocks: 100, SGLang: SGLangConfig{Conservativeness: tc.conservativeness}})
			g.asks("a", 10, 50)
			g.step()
			g.asks("b", 10, tc.output)
			if got := len(g.step().Admissions) == 1; got != tc.admitted {
				t.Errorf("admitted: %v, want %v", got, tc.admitted)
			}
		})
	}
}

func TestSGLangRatio(t *testing.T) {
	g := newSGLRig(t, Config{SGLang: SGLangConfig{Conservativeness: 0.5}})
	near := func(when string, want float64) {
		t.Helper()
		if d := g.s.ratio - want; d < -1e-9 || d > 1e-9 {
			t.Errorf("%s: ratio %v, want %v", when, g.s.ratio, want)
		}
	}
	near("at first", 0.35)
	g.asks("a", 1, 5000)
	g.step()
	near("after a pass", 0.35-0.35*0.86/600)
	for range 599 {
		g.step()
	}
	near("after 600 passes", 0.35*0.14)
	g.step()
	near("after 601 passes", 0.35*0.14)

	// With little reserved, two long answers are let in and one is retracted.
	g = newSGLRig(t, Config{Blocks: 40, SGLang: SGLangConfig{Conservativeness: 0.01}})
	g.asks("a", 4, 30)
	g.step()
	g.asks("b", 4, 30)
	for n := g.step().Preempted; n == 0; n = g.step().Preempted {
		if g.s.ratio >= g.s.initial {
			t.Fatalf("ratio %v before anything was retracted", g.s.ratio)
		}
	}
	near("after a retraction", 0.007)
}

func TestSGLangCachedPrefix(t *testing.T) {
	const shared = "sixteen letters."
	for _, tc := range []struct {
		name  string
		rules Rules
		want  []string
	}{
		{"not charged", Current, []string{"b+16 c+16 compute 8 -> b. c."}},
		{"mocker: charged", Mocker, []string{
			"b+8", "", "c+4 compute 4 -> b.", "", "compute 4 -> c.",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newSGLRig(t, Config{Rules: tc.rules, BlockSize: 4, SGLang: SGLangConfig{ChunkedPrefillSize: 8}})
			g.ask("a", shared, 1)
			g.steps("a+0 compute 8", "compute 8 -> a.")
			g.ask("b", shared+"bbbb", 1)
			g.ask("c", shared+"cccc", 1)
			g.steps(tc.want...)
		})
	}
}

// TestSGLangFullHit: the token after a prompt comes from computing its last.
func TestSGLangFullHit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rules    Rules
		page     int
		prompt   string
		want     string
		prefills bool
	}{
		{"page 1", Current, 1, "12345678", "b+7 compute 1 -> b.", true},
		{"page 4", Current, 4, "12345678", "b+4 compute 4 -> b.", true},
		{"page 4 and one", Current, 4, "123456789", "b+8 compute 1 -> b.", true},
		{"mocker", Mocker, 4, "12345678", "b+8 -> b.", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newSGLRig(t, Config{Rules: tc.rules, BlockSize: tc.page})
			g.ask("a", tc.prompt, 1)
			g.step()
			g.ask("b", tc.prompt, 1)
			p := g.step()
			if g.log[1] != tc.want {
				t.Errorf("got %q, want %q", g.log[1], tc.want)
			}
			if (p.Prefill > 0) != tc.prefills || p.Decode == 0 {
				t.Errorf("prefill took %v and decode %v", p.Prefill, p.Decode)
			}
		})
	}
}

// TestSGLangEvictable: all that nobody uses is room, not only the leaves of the
// tree.
func TestSGLangEvictable(t *testing.T) {
	for _, tc := range []struct {
		rules Rules
		want  string
	}{
		{Current, "d+0 compute 20 -> c. d."},
		{Mocker, "-> c."},
	} {
		t.Run(string(tc.rules), func(t *testing.T) {
			g := newSGLRig(t, Config{Rules: tc.rules, Blocks: 40})
			prefix := "twenty letters long, "
			g.ask("a", prefix+"aaa", 1)
			g.step()
			g.ask("b", prefix+"bbb", 1)
			g.step()
			g.asks("c", 2, 2)
			g.step()
			// Free are 11 pages; the prefix has 21 and its two ends 3 each.
			if got := []int{g.s.free, g.s.tree.pages, g.s.tree.loose}; !slices.Equal(got, []int{11, 27, 6}) {
				t.Fatalf("free, in the tree and its leaves: %v", got)
			}
			g.asks("d", 20, 1)
			g.steps(tc.want)
		})
	}
}

func TestSGLangLPM(t *testing.T) {
	long := strings.Repeat("long prefix ", 4) // 48
	half := long[:30]
	for _, tc := range []struct {
		name   string
		cached []string
		asks   []string
		want   string // order of admission
	}{
		{"longest prefix first", []string{long + "."}, []string{"none", long[:40] + "x", long + "y", "also none"}, "c b a d"},
		{"equal prefixes in order", []string{long}, []string{long + "c", long + "b", long + "a"}, "a b c"},
		{"one of those that share a beginning", nil, []string{long + "1", long + "2", "z", long + "3"}, "a c b d"},
		{"a beginning of less than 32 tokens", nil, []string{half + "1", half + "2", "z"}, "a b c"},
		{"a beginning of which 32 tokens are cached", []string{long[:32]}, []string{long + "1", long + "2", "z"}, "a c b"},
		{"a beginning of which more are cached", []string{long[:33]}, []string{long + "1", long + "2", "z"}, "a b c"},
	} {
		for _, page := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s, page %d", tc.name, page), func(t *testing.T) {
				if page == 8 && strings.Contains(tc.name, "more are cached") {
					t.Skip("33 tokens are 32 in full pages")
				}
				g := newSGLRig(t, Config{BlockSize: page, SGLang: SGLangConfig{Policy: LPM}})
				for _, text := range tc.cached {
					g.ask("-", text, 1)
				}
				g.drain(10)
				for i, text := range tc.asks {
					g.ask(string(rune('a'+i)), text, 1)
				}
				var got []string
				for _, a := range g.step().Admissions {
					got = append(got, g.names[a.Request])
				}
				if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestSGLangLPMLongLine(t *testing.T) {
	for _, tc := range []struct {
		waiting int
		first   string
	}{
		{128, "warm"},
		{129, "cold"},
	} {
		t.Run(fmt.Sprint(tc.waiting), func(t *testing.T) {
			g := newSGLRig(t, Config{MaxSeqs: 1, SGLang: SGLangConfig{Policy: LPM}})
			g.ask("-", "cached", 1)
			g.step()
			for range tc.waiting - 1 {
				g.asks("cold", 2, 1)
			}
			g.ask("warm", "cached text", 1)
			if got := g.names[g.step().Admissions[0].Request]; got != tc.first {
				t.Errorf("first is %s, want %s", got, tc.first)
			}
			// One less waits now.
			if tc.waiting == 129 {
				if got := g.names[g.step().Admissions[0].Request]; got != "warm" {
					t.Errorf("second is %s, want warm", got)
				}
			}
		})
	}
}

func TestSGLangRetraction(t *testing.T) {
	// With room kept for one token of each answer, too much is let in.
	hopeful := SGLangConfig{ClipMaxNewTokens: 1, ChunkedPrefillSize: 4}
	t.Run("of the shortest answer", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 16, SGLang: hopeful})
		g.ask("a", "aaaa", 9)
		g.steps("a+0 compute 4 -> a")
		b := g.ask("b", "bbbb", 9)
		g.steps("b+0 compute 4 -> a b", "-> a b", "-> a b", "-> a b")
		// Of 16 pages a has 8 and b has 7.
		g.steps("retract 1 -> a")
		if b.state != preempted || b.Generated() != 4 || g.e.Load().Waiting != 1 {
			t.Errorf("b has state %d and %d tokens", b.state, b.Generated())
		}
		// What b had computed, all but its last token, is left to the cache.
		if _, _, end := g.s.tree.find(b.Content, g.s.tree.root, 0, 8); end != 7 {
			t.Errorf("%d pages of b are cached", end)
		}
		// The answer of b, a leaf, is evicted for that of a; its prompt is not.
		g.steps("-> a", "-> a", "-> a.")
		g.steps("b+again 4 compute 4 -> b", "-> b", "-> b", "-> b", "-> b.")
		if b.Cached() != 0 {
			t.Errorf("b's own pages count as %d cached tokens", b.Cached())
		}
	})
	t.Run("of the first of equals", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 12, SGLang: SGLangConfig{ClipMaxNewTokens: 1}})
		g.asks("a", 4, 9)
		g.asks("b", 4, 9)
		g.steps("a+0 b+0 compute 8 -> a b", "-> a b", "-> a b", "retract 1 -> b")
	})
	t.Run("to the front of the line", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 12, MaxSeqs: 2, SGLang: SGLangConfig{ClipMaxNewTokens: 1}})
		g.asks("a", 4, 9)
		g.asks("b", 4, 7)
		g.asks("c", 1, 1)
		g.steps("a+0 b+0 compute 8 -> a b", "-> a b", "-> a b", "retract 1 -> b", "-> b", "-> b", "-> b.")
		g.steps("a+again 0 c+0 compute 8 -> a c.")
	})
	t.Run("of a broken off prompt for the last that runs", func(t *testing.T) {
		g := newSGLRig(t, Config{Blocks: 12, SGLang: hopeful})
		g.asks("a", 4, 9)
		g.steps("a+0 compute 4 -> a")
		b := g.asks("b", 6, 1)
		g.steps("b+0 compute 4 -> a", "-> a", "-> a", "-> a")
		if b.state != waiting || b.sglang.pages != 4 {
			t.Errorf("b has state %d and %d pages", b.state, b.sglang.pages)
		}
		g.steps("retract 1 -> a", "-> a", "-> a", "-> a.", "b+again 0 compute 4", "compute 2 -> b.")
	})
	for _, tc := range []struct {
		name  string
		rules Rules
		want  string
	}{
		{"not while there are pages in the tree", Current, "-> b c"},
		{"mocker: when its leaves have less than a token for each", Mocker, "retract 1 -> c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newSGLRig(t, Config{Rules: tc.rules, Blocks: 12, SGLang: hopeful})
			g.ask("a", "aaaaaa", 1)
			g.steps("a+0 compute 4", "compute 2 -> a.")
			g.s.tree.cut(g.s.tree.leaves[0], 1)
			g.asks("b", 2, 9)
			g.asks("c", 2, 9)
			g.steps("b+0 c+0 compute 4 -> b c", "-> b c")
			if got := []int{g.s.free, g.s.tree.pages, g.s.tree.loose}; !slices.Equal(got, []int{0, 6, 1}) {
				t.Fatalf("free, in the tree and its leaves: %v", got)
			}
			g.steps(tc.want)
		})
	}
}

// TestSGLangBrokenOffFirst: a prompt that was broken off goes on before any other,
// whatever the policy and whatever else came to the front.
func TestSGLangBrokenOffFirst(t *testing.T) {
	g := newSGLRig(t, Config{SGLang: SGLangConfig{Policy: LPM, ChunkedPrefillSize: 8}})
	cached := strings.Repeat("cached", 4)
	g.ask("-", cached, 1)
	g.drain(3)
	a := g.ask("a", "a prompt of 23 letters.", 1)
	g.steps("a+0 compute 8")
	if l := g.e.Load(); l.Waiting != 1 || l.Running != 0 || l.ActiveBlocks != 8 {
		t.Errorf("load %+v", l)
	}
	g.ask("b", cached+"b", 1)
	g.steps("compute 8", "b+24 compute 8 -> a. b.")
	if a.Cached() != 0 {
		t.Errorf("a's own chunks count as %d cached tokens", a.Cached())
	}
}
