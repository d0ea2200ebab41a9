package sched

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// ledgerBlocks returns blocks with the given ids.
func ledgerBlocks(ids ...kv.BlockID) []kv.Block {
	var p []kv.Block
	for _, id := range ids {
		p = append(p, kv.Block{ID: id})
	}
	return p
}

// ledgerPrompt returns n blocks with chained ids that no other number gives.
func ledgerPrompt(number uint64, n int) []kv.Block {
	p := make([]kv.Block, 0, n)
	id := kv.BlockID(number)
	for i := range n {
		local := kv.LocalHash(number<<32 + uint64(i))
		id = kv.Chain(id, local)
		p = append(p, kv.Block{ID: id, Tokens: local})
	}
	return p
}

// rounded returns what a rank's load is shown as.
func rounded(l Load) (blocks, tokens int) {
	return int(math.Round(l.Blocks + l.Output)), l.PrefillTokens
}

func wantLoad(t *testing.T, when string, l *Ledger, s Seat, blocks, tokens int) {
	t.Helper()
	if b, n := rounded(l.Load(s)); b != blocks || n != tokens {
		t.Errorf("%s: %d blocks, %d tokens, want %d and %d", when, b, n, blocks, tokens)
	}
}

func wantEmpty(t testing.TB, l *Ledger) {
	t.Helper()
	checkLedger(t, l)
	if n, blocks := l.Stats(); n != 0 || blocks != 0 {
		t.Errorf("%d stretches with %d blocks are left", n, blocks)
	}
	for s := range Seat(l.Seats()) {
		if got := l.Load(s); got != (Load{}) {
			t.Errorf("left on seat %d: %+v", s, got)
		}
	}
	for name, n := range l.Adapters() {
		t.Errorf("adapter %s has %d left", name, n)
	}
}

// T3 has the same id for the only block of r2 and the fourth of r3. Chained ids
// never are, so the ledger takes them for two blocks, and counts one more than the
// vector while both are live.
func TestLedgerT3Sharing(t *testing.T) {
	var l Ledger
	var r1, r2, r3 Booking
	s := l.Join()
	l.Book(&r1, s, Work{Prompt: ledgerBlocks(1, 2, 3), PrefillTokens: 12})
	wantLoad(t, "add r1", &l, s, 3, 12)
	l.Book(&r2, s, Work{Prompt: ledgerBlocks(4), PrefillTokens: 4})
	wantLoad(t, "add r2", &l, s, 4, 16)
	l.Book(&r3, s, Work{Prompt: ledgerBlocks(1, 2, 3, 4), PrefillTokens: 0})
	wantLoad(t, "add r3", &l, s, 5, 16)
	l.Free(&r2)
	wantLoad(t, "free r2", &l, s, 4, 12)
	l.Free(&r3)
	wantLoad(t, "free r3", &l, s, 3, 12)
	l.Free(&r1)
	wantLoad(t, "free r1", &l, s, 0, 0)
	wantEmpty(t, &l)
}

func TestLedgerT4Decay(t *testing.T) {
	var l Ledger
	var r1, r2 Booking
	s := l.Join()
	l.Book(&r1, s, Work{Prompt: ledgerBlocks(1, 2, 3), PrefillTokens: 12})
	wantLoad(t, "add r1", &l, s, 3, 12)
	l.Grow(&r1, 1, 0.5)
	wantLoad(t, "output(r1, 0.5)", &l, s, 2, 12)
	l.Book(&r2, s, Work{Prompt: ledgerBlocks(1, 2), PrefillTokens: 8})
	wantLoad(t, "add r2", &l, s, 2, 20)
	l.Grow(&r1, 1, 0)
	wantLoad(t, "output(r1, 0)", &l, s, 1, 20)
	l.Free(&r2)
	wantLoad(t, "free r2", &l, s, 1, 12)
	l.Free(&r1)
	wantLoad(t, "free r1", &l, s, 0, 0)
	wantEmpty(t, &l)
}

func TestLedgerT6OutputSchedule(t *testing.T) {
	const bs, isl, osl = 16, 40, 32
	type row struct {
		Token, Total, Blocks int
		Load                 Load
	}
	var l Ledger
	var r Booking
	s := l.Join()
	l.Book(&r, s, Work{Prompt: ledgerBlocks(1, 2), PrefillTokens: isl})
	l.Prefilled(&r)
	total := (isl + bs - 1) / bs
	if total != 3 {
		t.Fatalf("the prompt has %d blocks, want 3", total)
	}
	var got []row
	for cum := 1; cum <= 41; cum++ {
		if now := (isl + cum + bs - 1) / bs; now > total {
			l.Grow(&r, now-total, max(0, 1-float64(cum)/max(osl, 1)))
			total = now
			blocks, _ := rounded(l.Load(s))
			got = append(got, row{cum, total, blocks, l.Load(s)})
		}
	}
	want := []row{
		{9, 4, 2, Load{Requests: 1, Blocks: 2 * 0.71875, Output: 0.71875}},
		{25, 5, 1, Load{Requests: 1, Blocks: 2 * 0.21875, Output: 2 * 0.21875}},
		{41, 6, 0, Load{Requests: 1}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	l.Free(&r)
	wantEmpty(t, &l)
}

// A chunk that crosses several boundaries brings as many blocks.
func TestLedgerGrowBySeveral(t *testing.T) {
	var l Ledger
	var r Booking
	s := l.Join()
	l.Book(&r, s, Work{Prompt: ledgerBlocks(1, 2), Loose: 1})
	l.Grow(&r, 3, -1)
	if d := cmp.Diff(Load{Requests: 1, Blocks: 3, Output: 3}, l.Load(s)); d != "" {
		t.Error(d)
	}
	l.Grow(&r, 2, 0.25)
	if d := cmp.Diff(Load{Requests: 1, Blocks: 0.75, Output: 1.25}, l.Load(s)); d != "" {
		t.Error(d)
	}
	l.Grow(&r, 1, -1)
	l.Grow(&r, -4, math.NaN())
	if d := cmp.Diff(Load{Requests: 1, Blocks: 0.75, Output: 2.25}, l.Load(s)); d != "" {
		t.Error(d)
	}
	l.Grow(&r, 0, 7)
	if d := cmp.Diff(Load{Requests: 1, Blocks: 3, Output: 6}, l.Load(s)); d != "" {
		t.Error(d)
	}
	l.Free(&r)
	l.Grow(&r, 1, 1)
	wantEmpty(t, &l)
}

func TestLedgerT10DecodeOverride(t *testing.T) {
	var l Ledger
	var live, r Booking
	s := l.Join()
	l.Book(&live, s, Work{Prompt: ledgerPrompt(1, 8)})
	load := l.Load(s)
	const fresh = 10 // blocks of 160 tokens, none assumed to be reused
	if got := load.Blocks + load.Output + fresh; got != 18 {
		t.Errorf("%v potential blocks, want 18", got)
	}
	l.Book(&r, s, Work{Loose: fresh})
	wantLoad(t, "booked", &l, s, 18, 0)
	l.Free(&r)
	wantLoad(t, "freed", &l, s, 8, 0)
	l.Free(&live)
	wantEmpty(t, &l)
}

func TestLedgerLive(t *testing.T) {
	var l Ledger
	long, other := ledgerPrompt(1, 100), ledgerPrompt(2, 10)
	fork := append(slices.Clone(long[:40]), other...)
	var b [4]Booking
	for range 4 {
		l.Join()
	}
	l.Book(&b[0], 0, Work{Prompt: long})
	l.Book(&b[1], 1, Work{Prompt: long[:70]})
	l.Book(&b[2], 3, Work{Prompt: fork})
	for _, tt := range []struct {
		name   string
		prompt []kv.Block
		want   []int32
	}{
		{"none", nil, []int32{-1, 0, 0, 0, 0}},
		{"unknown", other, []int32{-1, 0, 0, 0, 0}},
		{"all", long, []int32{-1, 100, 70, 0, 40}},
		{"ends inside", long[:55], []int32{-1, 55, 55, 0, 40}},
		{"first block", long[:1], []int32{-1, 1, 1, 0, 1}},
		{"fork", fork, []int32{-1, 40, 40, 0, 50}},
		{"parts inside", append(slices.Clone(long[:80]), other...), []int32{-1, 80, 70, 0, 40}},
		{"parts inside early", append(slices.Clone(long[:3]), other...), []int32{-1, 3, 3, 0, 3}},
		{"goes on", append(slices.Clone(long), other...), []int32{-1, 100, 70, 0, 40}},
	} {
		used := []int32{-1, 9, 9, 9, 9} // is written over
		if d := cmp.Diff(tt.want, l.Live(used[:1], tt.prompt)); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
	checkLedger(t, &l)
}

// Equal ids after different blocks are two blocks; what is behind them is booked
// for the request alone.
func TestLedgerForgedIDs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prompts [][]kv.Block
		blocks  []float64 // after each
	}{
		{"begins as another goes on", [][]kv.Block{ledgerBlocks(1), ledgerBlocks(1, 2, 3), ledgerBlocks(2, 3)}, []float64{1, 3, 5}},
		{"goes on as another begins", [][]kv.Block{ledgerBlocks(7, 8), ledgerBlocks(1, 2), ledgerBlocks(1, 2, 7, 9, 10)}, []float64{2, 4, 7}},
		{"goes on after two", [][]kv.Block{ledgerBlocks(1), ledgerBlocks(2), ledgerBlocks(1, 3, 4), ledgerBlocks(2, 3, 4)}, []float64{1, 2, 4, 6}},
		{"cut where another begins", [][]kv.Block{ledgerBlocks(1, 2, 3), ledgerBlocks(3), ledgerBlocks(1, 2, 4)}, []float64{3, 4, 7}},
		{"one id throughout", [][]kv.Block{ledgerBlocks(1, 1, 1), ledgerBlocks(1, 2), ledgerBlocks(1, 1, 1)}, []float64{3, 5, 5}},
		{"its own ancestor", [][]kv.Block{ledgerBlocks(1), ledgerBlocks(1, 2, 1, 2), ledgerBlocks(1, 2, 3)}, []float64{1, 4, 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			orders := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}}
			for _, order := range orders {
				var l Ledger
				s := l.Join()
				b := make([]Booking, len(tt.prompts))
				for i, p := range tt.prompts {
					l.Book(&b[i], s, Work{Prompt: p})
					checkLedger(t, &l)
					if got := l.Load(s).Blocks; got != tt.blocks[i] {
						t.Errorf("after prompt %d: %v blocks, want %v", i, got, tt.blocks[i])
					}
				}
				for _, i := range order {
					if i < len(b) {
						l.Grow(&b[i], 1, 0.5)
						l.Free(&b[i])
						checkLedger(t, &l)
					}
				}
				wantEmpty(t, &l)
			}
		})
	}
}

func TestLedgerSeats(t *testing.T) {
	var l Ledger
	for want := range Seat(3) {
		if s := l.Join(); s != want {
			t.Fatalf("seat %d, want %d", s, want)
		}
	}
	prompt := ledgerPrompt(1, 20)
	var b [3]Booking
	for i := range b {
		l.Book(&b[i], Seat(i), Work{Prompt: prompt, PrefillTokens: 100})
	}
	l.Leave(1)
	l.Leave(1)
	if d := cmp.Diff([]int32{20, 0, 20}, l.Live(nil, prompt)); d != "" {
		t.Error(d)
	}
	if s := l.Join(); s != 3 {
		t.Errorf("seat %d while 1 is still booked, want 3", s)
	}
	if !l.Prefilled(&b[1]) || !l.Free(&b[1]) {
		t.Error("a booking on a seat that has left cannot be ended")
	}
	if s := l.Join(); s != 1 {
		t.Errorf("seat %d, want 1 again", s)
	}
	if got := l.Load(1); got != (Load{}) {
		t.Errorf("a new seat has %+v", got)
	}
	if d := cmp.Diff([]int32{20, 0, 20, 0}, l.Live(nil, prompt)); d != "" {
		t.Error(d)
	}
	l.Leave(3)
	if s := l.Join(); s != 3 {
		t.Errorf("seat %d, want 3, which had nothing booked", s)
	}
	l.Free(&b[0])
	l.Free(&b[2])
	wantEmpty(t, &l)
}

func TestLedgerMisuse(t *testing.T) {
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s does not panic", what)
			}
		}()
		f()
	}
	var l Ledger
	var b Booking
	s := l.Join()
	l.Book(&b, s, Work{})
	panics("booking twice", func() { l.Book(&b, s, Work{}) })
	l.Free(&b)
	l.Leave(s)
	panics("booking on a seat that has left", func() { l.Book(&b, s, Work{}) })
	wantEmpty(t, &l)
}

func TestLedgerEndsOnce(t *testing.T) {
	var l Ledger
	var a, b Booking
	s := l.Join()
	l.Book(&a, s, Work{Prompt: ledgerPrompt(1, 4), PrefillTokens: 50, Adapter: "x"})
	l.Book(&b, s, Work{Prompt: ledgerPrompt(1, 6), PrefillTokens: 30, Adapter: "x"})
	if !l.Prefilled(&a) || l.Prefilled(&a) {
		t.Error("the prompt is computed once")
	}
	if got := l.Load(s).PrefillTokens; got != 30 {
		t.Errorf("%d tokens, want 30", got)
	}
	if !a.Booked() || !l.Free(&a) || l.Free(&a) || a.Booked() {
		t.Error("a booking ends once")
	}
	if a.Seat() != s || l.Prefilled(&a) {
		t.Error("a booking that has ended is still one")
	}
	if d := cmp.Diff(Load{Requests: 1, PrefillTokens: 30, Blocks: 6}, l.Load(s)); d != "" {
		t.Error(d)
	}
	if !l.Free(&b) {
		t.Error("the other booking has ended with the first")
	}
	l.Book(&a, s, Work{Prompt: ledgerPrompt(1, 4), Loose: -1, PrefillTokens: -5})
	if d := cmp.Diff(Load{Requests: 1, Blocks: 4}, l.Load(s)); d != "" {
		t.Error(d)
	}
	if !l.Prefilled(&a) {
		t.Error("that nothing had to be computed is no news")
	}
	l.Free(&a)
	wantEmpty(t, &l)
}

// Prompts that grow while they are booked leave few stretches behind.
func TestLedgerChainIsJoined(t *testing.T) {
	var l Ledger
	s := l.Join()
	prompt := ledgerPrompt(1, 4096)
	b := make([]Booking, len(prompt))
	for i := range prompt {
		l.Book(&b[i], s, Work{Prompt: prompt[:i+1]})
		if i > 0 {
			l.Free(&b[i-1])
		}
	}
	checkLedger(t, &l)
	if n, blocks := l.Stats(); n > 2*len(prompt)/joinCopy+2 || blocks != len(prompt) {
		t.Errorf("%d stretches with %d blocks for one prompt of %d", n, blocks, len(prompt))
	}
	l.Free(&b[len(b)-1])
	wantEmpty(t, &l)
}

// What is left of a long prompt does not keep the memory of all of it.
func TestLedgerShortRest(t *testing.T) {
	var l Ledger
	s := l.Join()
	var long, short Booking
	prompt := ledgerPrompt(1, 8192)
	l.Book(&long, s, Work{Prompt: prompt})
	l.Book(&short, s, Work{Prompt: prompt[:5]})
	l.Free(&long)
	checkLedger(t, &l)
	if got := cap(l.stretches[prompt[0].ID].chunk.ids); got > 8 {
		t.Errorf("5 blocks take room for %d", got)
	}
	l.Free(&short)
	wantEmpty(t, &l)
}

// The prompts end in blocks that come after others as well, so that some are booked
// for one request alone.
func TestLedgerNothingLeft(t *testing.T) {
	var l Ledger
	const seats, requests = 16, 10000
	for range seats {
		l.Join()
	}
	b := make([]Booking, requests)
	for i := range b {
		n := uint64(i)
		prompt := append(ledgerPrompt(n%50, 20+i%13), ledgerPrompt(n%700, i%9)...)
		l.Book(&b[i], Seat(i%seats), Work{Prompt: prompt, Loose: i % 3, PrefillTokens: i, Adapter: []string{"", "a", "b"}[i%3]})
	}
	checkLedger(t, &l)
	for i := range b {
		l.Grow(&b[i], i%4, float64(i%11)/10)
	}
	for i := range b {
		l.Free(&b[i*7919%requests])
	}
	wantEmpty(t, &l)
}

// Memory for more than is kept to be used again goes back.
func TestLedgerSparesAreBounded(t *testing.T) {
	var l Ledger
	s := l.Join()
	const length = 1 << 19
	b := make([]Booking, 2+maxSpare/(8*length))
	for i := range b {
		l.Book(&b[i], s, Work{Prompt: ledgerPrompt(uint64(i), length)})
	}
	for i := range b {
		l.Free(&b[i])
	}
	wantEmpty(t, &l)
	if got := l.spares.bytes; got < maxSpare/2 {
		t.Errorf("only %d bytes are kept", got)
	}
}

func TestLedgerAllocs(t *testing.T) {
	var l Ledger
	for range 64 {
		l.Join()
	}
	shared := ledgerPrompt(1, 512)
	var other [64]Booking
	for i := range other {
		l.Book(&other[i], Seat(i), Work{Prompt: append(slices.Clone(shared[:8*i]), ledgerPrompt(uint64(i+2), 100)...), Adapter: "x"})
	}
	prompts := [][]kv.Block{shared, append(slices.Clone(shared[:77]), ledgerPrompt(99, 300)...), shared[:203]}
	live := make([]int32, 0, 64)
	var b [3]Booking
	round := func() {
		for i := range b {
			live = l.Live(live[:0], prompts[i])
			l.Book(&b[i], Seat(5*i), Work{Prompt: prompts[i], Loose: 1, PrefillTokens: 9, Adapter: "x"})
			l.Prefilled(&b[i])
		}
		for i := range b {
			l.Grow(&b[i], 1, 0.5)
			l.Grow(&b[i], 1, -1)
		}
		for i := range b {
			l.Free(&b[i])
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations in a round of bookings", n)
	}
}
