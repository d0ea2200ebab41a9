package replay

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/trace"
)

// submission is a request in the router's hands, and the memory behind what the
// router is told. It is used again once it has been delivered.
type submission struct {
	index   int
	request router.Request
	blocks  []kv.Block
	decided bool
	err     error
	done    func(*router.Placement, error)
}

// submission returns one that is not in use.
func (r *run) submission() *submission {
	if n := len(r.spare); n > 0 {
		s := r.spare[n-1]
		r.spare = r.spare[:n-1]
		return s
	}
	s := &submission{blocks: []kv.Block{}} // a prompt without a full block has blocks, none of them
	// The router calls it from within whatever made room for the request, in the
	// middle of a pass's end. What follows from it has to wait until that is over.
	s.done = func(_ *router.Placement, err error) {
		s.decided, s.err = true, err
		r.decided = append(r.decided, s)
	}
	return s
}

// place has the router choose a rank for request i, now or when there is room.
func (r *run) place(i int) error {
	r.results[i].Arrived = r.now
	s := r.submission()
	s.index, s.decided = i, false
	r.describe(s)
	r.asking++
	r.router.Submit(&s.request, s.done)
	if !s.decided {
		r.logf("wait %d\n", i)
	}
	return r.deliver()
}

// describe fills in what the router is told of a request.
func (r *run) describe(s *submission) {
	q := &r.trace.Requests[s.index]
	s.request = router.Request{
		Model:        r.model,
		PromptTokens: q.Input,
		Into:         &r.placements[s.index],
		Explain:      r.cfg.Log != nil,
	}
	if r.caches {
		s.blocks = appendPrompt(s.blocks[:0], &r.contents[s.index])
		s.request.Blocks, s.request.BlockSize = s.blocks, r.blockSize
	}
	if h := q.Hints; h != nil {
		if h.OSL != nil {
			s.request.ExpectedOutput = int(*h.OSL)
		}
		if h.Priority != nil {
			s.request.Jump = float64(*h.Priority)
		}
		if h.StrictPriority != nil {
			s.request.Tier = *h.StrictPriority
		}
	}
	if r.cfg.KnownOutput {
		s.request.ExpectedOutput = q.Output
	}
	if r.cfg.Prepare != nil {
		r.cfg.Prepare(s.index, &s.request)
	}
}

// appendPrompt appends the full blocks of a prompt as a router knows them. The
// content has the hash of each block's tokens; the names under which engines tell of
// them are of their own making and stand for the same.
func appendPrompt(dst []kv.Block, c *trace.Content) []kv.Block {
	for i := range c.Full() {
		local := c.Block(i).Tokens
		id := kv.BlockID(local)
		if i > 0 {
			id = kv.Chain(dst[len(dst)-1].ID, local)
		}
		dst = append(dst, kv.Block{ID: id, Tokens: local})
	}
	return dst
}

// deliver gives the requests on which the router has decided to their engines.
func (r *run) deliver() error {
	for _, s := range r.decided {
		if err := r.received(s); err != nil {
			return err
		}
		r.spare = append(r.spare, s)
	}
	r.decided = r.decided[:0]
	return nil
}

// received gives a request to its engine, unless the router refused it.
func (r *run) received(s *submission) error {
	i := s.index
	r.asking--
	var limit *sched.LimitError
	switch {
	case errors.Is(s.err, router.ErrOverloaded), errors.As(s.err, &limit):
		r.out.Refused++
		r.logf("refuse %d: %v\n", i, s.err)
		r.follow(i)
		return nil
	case s.err != nil:
		return fmt.Errorf("request %d: %w", i, s.err)
	}
	leg, res := r.placements[i].Last(), &r.results[i]
	res.Worker, res.Rank, res.Overlap, res.Placed = leg.Target.Worker, leg.Target.Rank, leg.OverlapBlocks, r.now
	at := r.engineOf(leg.Target.Worker, leg.Target.Rank)
	r.engines[at].engine.Receive(&r.requests[i])
	r.wake(at)
	r.logPlaced(i)
	return nil
}

// logPlaced writes down a decision. Of scores every digit counts.
func (r *run) logPlaced(i int) {
	if r.cfg.Log == nil {
		return
	}
	res, why := &r.results[i], r.placements[i].Routing
	r.logf("place %d on %d/%d: %s, overlap %d of %d, score %s, tied %d, waited %d\n", i, res.Worker, res.Rank,
		why.Reason, res.Overlap, why.TotalBlocks, strconv.FormatFloat(float64(why.Chosen.Score), 'g', -1, 64), why.Tied, int64(res.Wait()))
}

// settle tells the router what the engine found in its cache of a request that has
// been answered, and notes what it makes of that.
func (r *run) settle(i int) {
	p, res := &r.placements[i], &r.results[i]
	res.Verdict = p.Usage(r.trace.Requests[i].Input, res.Cached)
	if r.cfg.Log != nil && res.Verdict != "" {
		r.logf("cached %d: %d tokens, %s\n", i, res.Cached, res.Verdict)
	}
}
