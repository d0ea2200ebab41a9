package kvindex_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// step is one call of an index. A list of them is a script, which runs the same way
// every time.
type step struct {
	do     verb
	src    kv.Source // its worker, for dropWorker
	epoch  uint64
	seq    uint64
	events []kv.Event // of apply, restore and spoil
	prompt []kv.Block // of route
}

type verb int

const (
	apply      verb = iota // a batch
	route                  // a prompt to a rank
	dropRank               // RemoveRank
	dropWorker             // RemoveWorker
	clearRank              // ClearRank
	restore                // a rank from events
	spoil                  // a restore that fails after its events
	reload                 // all ranks dumped and restored into a fresh index
)

func (s step) String() string {
	var b strings.Builder
	name := [...]string{"apply", "route", "drop rank", "drop worker", "clear rank", "restore", "spoil", "reload"}[s.do]
	fmt.Fprintf(&b, "%s %d/%d", name, s.src.Worker, s.src.Rank)
	switch s.do {
	case apply, restore, spoil:
		fmt.Fprintf(&b, " epoch %d seq %d", s.epoch, s.seq)
	case route:
		fmt.Fprintf(&b, " %s", blocksString(s.prompt))
	}
	for i := range s.events {
		fmt.Fprintf(&b, "\n\t%s", eventString(&s.events[i]))
	}
	return b.String()
}

func eventString(ev *kv.Event) string {
	words := []string{[...]string{"no kind", "stored", "removed", "cleared"}[min(ev.Kind, kv.Cleared)]}
	if ev.Kind == kv.Cleared {
		return words[0]
	}
	words = append(words, [...]string{"device", "host", "disk", "external"}[ev.Tier])
	if ev.Counted {
		words = append(words, "counted")
	}
	if ev.Bare {
		words = append(words, "bare")
	}
	if ev.HasParent {
		words = append(words, fmt.Sprintf("after %d", ev.Parent))
	}
	if ev.HasParentSeq {
		words = append(words, fmt.Sprintf("at %d", ev.ParentSeq))
	}
	return strings.Join(words, " ") + ": " + blocksString(ev.Blocks)
}

func blocksString(blocks []kv.Block) string {
	words := make([]string, len(blocks))
	for i, b := range blocks {
		words[i] = fmt.Sprintf("%d(%d)", b.ID, b.Tokens)
	}
	return strings.Join(words, " ")
}

// rig runs scripts on an index and on the naive one and compares them.
type rig struct {
	cfg     kvindex.Config
	vague   bool
	prompts [][]kv.Block

	real  *kvindex.Index
	model *naive
	// base is what the index had counted when the model's counts were last set to 0.
	base kvindex.Stats

	looked     int // blocks looked up
	told       int // blocks stored and removed
	doubts     int // ranks given up because their outcome was in doubt
	reloads    int // ranks that were dumped and restored exactly
	got, want  []kvindex.Overlap
	touched    []kv.Source
	batchSpace kv.Batch
}

func newRig(cfg kvindex.Config, vague bool, prompts [][]kv.Block) *rig {
	return &rig{
		cfg: cfg, vague: vague, prompts: prompts,
		real: kvindex.New(cfg), model: newNaive(cfg.ClearWorker, vague),
	}
}

var errSpoiled = errors.New("spoiled")

// run does one step on both and compares what must follow from it. It does not look
// anything up.
func (g *rig) run(s *step) error {
	g.touched = append(g.touched[:0], s.src)
	for i := range s.events {
		g.told += len(s.events[i].Blocks)
	}
	g.told += len(s.prompt)
	doubt := false
	switch s.do {
	case apply:
		doubt = g.model.apply(&kv.Batch{Source: s.src, Epoch: s.epoch, Seq: s.seq, Events: s.events})
		// The index keeps nothing of a batch: it gets one whose memory is used again.
		b := &g.batchSpace
		*b = kv.Batch{Source: s.src, Epoch: s.epoch, Seq: s.seq, Events: copyEvents(b.Events, s.events)}
		if err := g.real.Apply(b); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		for i := range b.Events {
			for k := range b.Events[i].Blocks {
				b.Events[i].Blocks[k] = kv.Block{ID: 0xdead, Tokens: 0xbeef}
			}
		}
	case route:
		doubt = g.model.route(s.src, s.prompt)
		g.real.Route(time.Unix(1e9, 0), s.src, s.prompt)
	case dropRank:
		if got, want := g.real.RemoveRank(s.src), g.model.removeRank(s.src); got != want {
			return fmt.Errorf("RemoveRank is %v, want %v", got, want)
		}
	case dropWorker:
		if got, want := g.real.RemoveWorker(s.src.Worker), g.model.removeWorker(s.src.Worker); got != want {
			return fmt.Errorf("RemoveWorker is %d, want %d", got, want)
		}
	case clearRank:
		g.model.clearRank(s.src)
		g.real.ClearRank(s.src)
	case restore:
		doubt = g.model.restore(s.src, s.epoch, s.seq, s.events)
		if err := g.real.Restore(s.src, s.epoch, s.seq, pour(s.events, nil)); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		g.rebase()
	case spoil:
		if err := g.real.Restore(s.src, s.epoch, s.seq, pour(s.events, errSpoiled)); !errors.Is(err, errSpoiled) {
			return fmt.Errorf("restore that fails: got error %v", err)
		}
		g.rebase()
	case reload:
		return g.reload()
	}
	if doubt {
		g.giveUp(s.src)
	}
	return g.sameRanks(g.touched...)
}

// giveUp makes both forget a rank of which nobody can say what it holds.
func (g *rig) giveUp(src kv.Source) {
	g.doubts++
	g.model.removeRank(src)
	g.real.RemoveRank(src)
	g.rebase()
}

// rebase forgets the counts of events so far.
func (g *rig) rebase() {
	g.base, g.model.naiveCounts = g.real.Stats(), naiveCounts{}
}

// reload goes on with a fresh index that gets what the old one dumps.
func (g *rig) reload() error {
	fresh, model := kvindex.New(g.cfg), newNaive(g.model.clearWorker, g.vague)
	var torn []kv.Source
	for _, src := range g.model.sources() {
		old := g.model.ranks[src]
		d, ok := g.real.Dump(src)
		if !ok {
			return fmt.Errorf("no dump of rank %v", src)
		}
		if d.Source != src || d.Epoch != old.epoch || d.Seq != old.seq || d.Known != old.known {
			return fmt.Errorf("dump of %v: of %v at epoch %d seq %d (known %v), want epoch %d seq %d (known %v)",
				src, d.Source, d.Epoch, d.Seq, d.Known, old.epoch, old.seq, old.known)
		}
		events := dumped(d)
		// Which of two places of a name is the latest is lost.
		if model.restore(src, d.Epoch, d.Seq, events) || !old.plain() {
			torn = append(torn, src)
		}
		if err := fresh.Restore(src, d.Epoch, d.Seq, pour(events, nil)); err != nil {
			return fmt.Errorf("restore of a dump: %w", err)
		}
		g.reloads++
		if err := sameRank(old, model.ranks[src]); err != nil {
			return fmt.Errorf("dump of %v: %w; it has\n%s", src, err, eventLines(events))
		}
		if n := model.ranks[src].adopted; n > 0 {
			return fmt.Errorf("dump of %v: %d blocks before those that they follow:\n%s", src, n, eventLines(events))
		}
		if old.plain() && d.Blocks != old.blocks {
			return fmt.Errorf("dump of %v: %d blocks, want %d", src, d.Blocks, old.blocks)
		}
	}
	g.real, g.model = fresh, model
	for _, src := range torn {
		g.giveUp(src)
	}
	g.rebase()
	return g.sameRanks(model.sources()...)
}

// sameRank compares what lookups see of two ranks, what waits and what is counted.
// Of a name that waits twice, or has a place and waits, one wait may be lost.
func sameRank(want, got *naiveRank) error {
	if want.blocks-want.hidden != got.blocks-got.hidden || want.plain() && want.hidden != got.hidden {
		return fmt.Errorf("%d blocks of which %d wait, want %d and %d", got.blocks, got.hidden, want.blocks, want.hidden)
	}
	for t := range want.tiers {
		a, b := &want.tiers[t], &got.tiers[t]
		for id, links := range a.byID {
			for _, l := range links {
				if (l.seen || len(links) == 1) && !slices.ContainsFunc(b.byID[id], l.same) {
					return fmt.Errorf("block %d of tier %d is not where it was", id, t)
				}
			}
			if a.extra[id] != b.extra[id] {
				return fmt.Errorf("block %d of tier %d: %d more copies, want %d", id, t, b.extra[id], a.extra[id])
			}
		}
	}
	return nil
}

// same reports whether two links of a block lie at the same place, or wait for the
// same.
func (l *naiveLink) same(o *naiveLink) bool {
	if l.fixed || !l.hasParent {
		return o.seen == l.seen && o.seq == l.seq
	}
	return !o.fixed && o.parent == l.parent
}

// sameRanks compares what both know of ranks.
func (g *rig) sameRanks(ranks ...kv.Source) error {
	for _, src := range ranks {
		got, gotOK := g.real.Rank(src)
		want, wantOK := g.model.stats(src)
		if got != want || gotOK != wantOK {
			return fmt.Errorf("Rank(%v) is %+v, %v; want %+v, %v", src, got, gotOK, want, wantOK)
		}
	}
	return nil
}

// lookup compares the answers for some prompts.
func (g *rig) lookup(prompts ...int) error {
	for _, i := range prompts {
		p := g.prompts[i]
		g.looked += len(p)
		g.got, g.want = g.real.Match(g.got[:0], p), g.model.match(g.want[:0], p)
		if !slices.Equal(g.got, g.want) {
			return fmt.Errorf("Match of %s\n got %v\nwant %v", blocksString(p), g.got, g.want)
		}
	}
	return nil
}

// count compares what both say of themselves as a whole, and looks whether the index
// is in order.
func (g *rig) count() error {
	if got, want := g.real.Ranks(), g.model.sources(); !slices.Equal(got, want) {
		return fmt.Errorf("Ranks is %v, want %v", got, want)
	}
	got := g.real.Stats()
	want := kvindex.Stats{Ranks: len(g.model.ranks)}
	for _, r := range g.model.ranks {
		want.Blocks += r.blocks
		want.Orphans += r.hidden
	}
	if got.Ranks != want.Ranks || got.Blocks != want.Blocks || got.Orphans != want.Orphans {
		return fmt.Errorf("Stats has %d ranks, %d blocks, %d orphans; want %d, %d, %d",
			got.Ranks, got.Blocks, got.Orphans, want.Ranks, want.Blocks, want.Orphans)
	}
	for k := range got.Applied {
		for st := range got.Applied[k] {
			if n := got.Applied[k][st] - g.base.Applied[k][st]; n != g.model.applied[k][st] {
				return fmt.Errorf("Stats has %d events of kind %d with status %d, want %d", n, k, st, g.model.applied[k][st])
			}
		}
	}
	if n := got.Duplicates - g.base.Duplicates; n != g.model.duplicates {
		return fmt.Errorf("Stats has %d duplicates, want %d", n, g.model.duplicates)
	}
	return g.real.Check()
}

// play runs a script and looks everything up after every step. It returns the
// number of steps done, the failing one included.
func play(cfg kvindex.Config, vague bool, prompts [][]kv.Block, script []step) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			n, err = n+1, fmt.Errorf("panic: %v", p)
		}
	}()
	g := newRig(cfg, vague, prompts)
	all := make([]int, len(prompts))
	for i := range all {
		all[i] = i
	}
	for ; n < len(script); n++ {
		if err := g.run(&script[n]); err != nil {
			return n + 1, err
		}
		if err := g.lookup(all...); err != nil {
			return n + 1, err
		}
		if err := g.count(); err != nil {
			return n + 1, err
		}
	}
	return n, nil
}

// shrink returns a shorter script for which fails, which is the number of steps
// until it fails or 0, is not 0 either. It calls fails at most tries times.
func shrink(script []step, tries int, fails func([]step) int) []step {
	test := func(s []step) bool {
		if tries--; tries < 0 {
			return false
		}
		if n := fails(s); n > 0 {
			script = slices.Clone(s[:n])
			return true
		}
		return false
	}
	test(script)
	for again := true; again && tries > 0; {
		again = false
		for size := max(1, len(script)/2); size > 0; size /= 2 {
			for at := len(script) - size; at >= 0; at -= size {
				if at+size <= len(script) && test(slices.Concat(script[:at], script[at+size:])) {
					again = true
				}
			}
		}
		for i := len(script) - 1; i >= 0; i-- {
			for e := 0; i < len(script) && e < len(script[i].events); e++ {
				without := func(s step) step { s.events = slices.Delete(slices.Clone(s.events), e, e+1); return s }
				if test(with(script, i, without)) {
					again = true
					e--
					continue
				}
				for k := len(script[i].events[e].Blocks) - 1; k >= 0; k-- {
					without := func(s step) step {
						s.events = slices.Clone(s.events)
						s.events[e].Blocks = slices.Delete(slices.Clone(s.events[e].Blocks), k, k+1)
						return s
					}
					if test(with(script, i, without)) {
						again = true
					}
				}
			}
		}
	}
	return script
}

// with returns the script with another step i.
func with(script []step, i int, change func(step) step) []step {
	script = slices.Clone(script)
	script[i] = change(script[i])
	return script
}

func scriptLines(script []step) string {
	var b strings.Builder
	for _, s := range script {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

func eventLines(events []kv.Event) string {
	var b strings.Builder
	for i := range events {
		fmt.Fprintln(&b, eventString(&events[i]))
	}
	return b.String()
}

// dumped returns a copy of the events of a dump.
func dumped(d *kvindex.Dump) []kv.Event {
	var events []kv.Event
	for ev := range d.All() {
		c := *ev
		c.Blocks = slices.Clone(ev.Blocks)
		events = append(events, c)
	}
	return events
}

// pour yields events, each in memory that is used again for the next, and then an
// error if there is one.
func pour(events []kv.Event, err error) iter.Seq2[*kv.Event, error] {
	return func(yield func(*kv.Event, error) bool) {
		var space []kv.Event
		for i := range events {
			space = copyEvents(space, events[i:i+1])
			if !yield(&space[0], nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// copyEvents copies events into the memory of dst.
func copyEvents(dst, events []kv.Event) []kv.Event {
	dst = slices.Grow(dst[:0], len(events))[:len(events)]
	for i := range events {
		blocks := dst[i].Blocks
		dst[i] = events[i]
		dst[i].Blocks = append(blocks[:0], events[i].Blocks...)
	}
	return dst
}
