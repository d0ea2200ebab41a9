package trie

import (
	"cmp"
	"container/heap"
	"slices"
)

// interval is something with a beginning and an end in a run.
type interval struct {
	parent     string // parent is what was going on when it began
	start, end float64
	ended      bool
}

// slackFinder finds the slack of calls. It keeps what one run needs for the next.
type slackFinder struct {
	intervals []interval
	spans     map[string]*interval // by UUID
	ends      map[string]float64   // by UUID
	groups    map[string]*siblings // by the place in which they began
}

// find returns for each call how much of its time did not matter because something beside
// it took longer: 0 if nothing did, 0.8 if it took 1 s beside 5 s.
//
// Beside a call is what overlaps with it in time and began in the same place: in the function
// that called the call's function, or if nothing else began there, where the call itself did.
// What the call is a part of does not count, unless it is to be as NeMo Agent Toolkit does it.
//
// Something that overlaps with a call and is longer was going on when the call began or
// when it ended: it had begun before that instant and ended after it. So the longest is
// found by asking at these two instants what is going on, and one pass over the time of all
// that began in a place answers for all calls there.
func (f *slackFinder) find(steps []*Step, calls []call, known map[string]Invocation, compat bool) []float64 {
	if f.spans == nil {
		f.spans, f.groups = make(map[string]*interval), make(map[string]*siblings)
		f.ends = make(map[string]float64)
	}
	f.read(steps, compat)
	spans, groups := f.spans, f.groups
	for _, s := range spans {
		if s.ended && s.parent != "" {
			g := groups[s.parent]
			if g == nil {
				g = new(siblings)
				groups[s.parent] = g
			}
			g.spans = append(g.spans, s)
		}
	}
	for i := range calls {
		c := &calls[i]
		if c.dur <= 0 {
			continue
		}
		place := c.Function.ParentID
		g := groups[place]
		without := enclosing(c, place, spans, known, compat)
		if g == nil || !compat && len(g.spans) <= len(without) {
			place = c.ParentID
			g = groups[place]
			without = enclosing(c, place, spans, known, compat)
		}
		if g != nil {
			g.asked = append(g.asked, question{i, c.start, without}, question{i, c.end, without})
		}
	}
	longest := make([]float64, len(calls))
	for _, g := range groups {
		g.answer(longest)
	}
	f.spans, f.groups, f.ends = emptied(spans), emptied(groups), emptied(f.ends)
	clear(f.intervals)
	for i := range longest {
		if longest[i] > 0 {
			longest[i] = max(0, 1-calls[i].dur/longest[i])
		}
	}
	return longest
}

// read sets f.spans to what both began and ended, and what has only begun. An end belongs
// to the start before it; for NeMo Agent Toolkit the last start and the last end belong
// together, which may be the other way round among the steps of one time.
func (f *slackFinder) read(steps []*Step, compat bool) {
	f.intervals = slices.Grow(f.intervals[:0], len(steps)) // once: spans point into it
	for _, s := range steps {
		if s.UUID == "" {
			continue
		}
		switch s.Type {
		case LLMStart, ToolStart, FunctionStart, SpanStart:
			f.intervals = append(f.intervals, interval{parent: s.ParentID, start: s.Time})
			f.spans[s.UUID] = &f.intervals[len(f.intervals)-1]
		case LLMEnd, ToolEnd, FunctionEnd, SpanEnd:
			if compat {
				f.ends[s.UUID] = s.Time
			} else if o := f.spans[s.UUID]; o != nil {
				o.end, o.ended = s.Time, true
			}
		}
	}
	for id, end := range f.ends {
		if o := f.spans[id]; o != nil {
			o.end, o.ended = end, true
		}
	}
}

// enclosing returns those spans that began in a place and are the call itself or, unless
// compat is set, something that it is a part of.
func enclosing(c *call, place string, spans map[string]*interval, known map[string]Invocation, compat bool) []*interval {
	var in []*interval
	add := func(id string) {
		if s := spans[id]; s != nil && s.ended && s.parent == place && !slices.Contains(in, s) {
			in = append(in, s)
		}
	}
	add(c.UUID)
	if compat {
		return in
	}
	id := c.ParentID
	for range MaxDepth {
		s := spans[id]
		if s == nil {
			break
		}
		add(id)
		id = s.parent
	}
	f := c.Function
	for range MaxDepth {
		if f.ID == "" {
			break
		}
		add(f.ID)
		if caller, ok := known[f.ParentID]; ok {
			f = caller
		} else {
			f = Invocation{ID: f.ParentID}
		}
	}
	return in
}

// siblings are what began in one place, and what is asked about them.
type siblings struct {
	spans []*interval
	asked []question
}

// question asks, for a call, for the longest that is going on at a time, without some.
type question struct {
	call    int
	at      float64
	without []*interval
}

// answer raises longest, by call, to the duration that is asked for.
func (g *siblings) answer(longest []float64) {
	slices.SortFunc(g.spans, func(a, b *interval) int { return cmp.Compare(a.start, b.start) })
	slices.SortFunc(g.asked, func(a, b question) int { return cmp.Compare(a.at, b.at) })
	var going longestFirst
	var aside []*interval
	begun := 0
	for _, q := range g.asked {
		for begun < len(g.spans) && g.spans[begun].start < q.at {
			heap.Push(&going, g.spans[begun])
			begun++
		}
		for len(going) > 0 {
			s := going[0]
			if s.end > q.at {
				if !slices.Contains(q.without, s) {
					longest[q.call] = max(longest[q.call], s.end-s.start)
					break
				}
				aside = append(aside, s)
			}
			heap.Pop(&going)
		}
		for _, s := range aside {
			heap.Push(&going, s)
		}
		aside = aside[:0]
	}
}

// longestFirst is a heap of spans by how long they are.
type longestFirst []*interval

func (h longestFirst) Len() int           { return len(h) }
func (h longestFirst) Less(i, j int) bool { return h[i].end-h[i].start > h[j].end-h[j].start }
func (h longestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *longestFirst) Push(s any) { *h = append(*h, s.(*interval)) }

// Pop implements [heap.Interface].
func (h *longestFirst) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
