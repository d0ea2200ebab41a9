package simserver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
)

// job is a request in the hands of an engine model. The answer is known already,
// every token of it; what the engine decides is when they come.
//
// Tokens are handed over by counting them: whoever drives the rank adds to the
// number that is due and rings a bell that has been rung already if the reader is
// slow. Neither side waits for the other or allocates.
type job struct {
	rank      *rank // with anyRank, where it is booked until it is queued
	anyRank   bool
	sequences []sequence // one per choice
	bell      chan struct{}
	rejected  atomic.Bool  // the engine cannot run it
	modelled  atomic.Int64 // when its latest tokens should have come

	// Times of the arrival and of the first and the last token, set before the
	// tokens are due.
	arrived, first, last time.Duration

	// Guarded by the rank's mutex.
	begun bool // there was a token
	left  int  // sequences that have not ended
}

// sequence is one choice of a job.
type sequence struct {
	job     *job
	request simengine.Request // the engine's once submitted
	content contents
	tokens  int          // how many it will have
	ending  ending       // how it will end
	due     atomic.Int64 // tokens that have come
	cached  int          // prompt tokens found in the cache; set before a token is due

	// Guarded by the rank's mutex.
	started bool          // it has run, or never will
	done    bool          // or taken back
	last    time.Duration // when its latest token came
}

// newJob returns the job of an answer of which nothing has been written yet. It
// has not been submitted.
func newJob(r *rank, req *request, choices []choice) *job {
	j := &job{
		rank:      r,
		anyRank:   req.rank < 0,
		sequences: make([]sequence, len(choices)),
		bell:      make(chan struct{}, 1),
		arrived:   req.arrival,
		left:      len(choices),
	}
	cfg := &r.server.cfg
	seed := req.hashing.Seed
	var prompt []kv.Block
	for i := range j.sequences {
		s, c := &j.sequences[i], &choices[i]
		if i%req.n == 0 {
			prompt = kv.ExtendBlocks(c.prompt.blocks, seed, c.prompt.ids, cfg.BlockSize)
		}
		answer := blockWriter{keep: cfg.Publish != nil}
		answer.follow(seed, cfg.BlockSize, c.prompt.ids, prompt)
		s.job = j
		s.tokens, s.ending = c.rehearse(&answer)
		s.request = simengine.Request{Prompt: len(c.prompt.ids), MaxOutput: s.tokens, Content: &s.content, Owner: s,
			Priority: req.priority, Fresh: req.fresh, Slot: req.slot}
		s.content = contents{prompt: prompt, answer: answer.out}
		if cfg.Publish != nil {
			s.content.wording = &wording{
				prompt: c.prompt.ids, answer: answer.ids,
				adapter: slices.Index(cfg.Adapters, req.adapter) + 1, lora: req.adapter, salt: req.salt,
			}
		}
	}
	return j
}

// output takes over what a pass did for the sequence that should have ended at
// one time and was heard of at another.
func (s *sequence) output(o *simengine.Output, end, at time.Duration) {
	j := s.job
	j.modelled.Store(int64(end))
	if s.due.Load() == 0 {
		s.cached = s.request.Cached()
		if !j.begun {
			j.begun, j.first = true, at
		}
	}
	s.last, j.last = at, at
	if o.Done {
		s.done = true
		j.left--
		s.due.Store(int64(s.tokens))
	} else {
		s.due.Add(int64(o.Tokens))
	}
	j.wake()
}

// wake tells the reader that there is something new.
func (j *job) wake() {
	select {
	case j.bell <- struct{}{}:
	default:
	}
}

// errRejected means that the engine cannot ever run a request.
var errRejected = errors.New("the engine cannot run the request")

// more waits until the bell rings.
func (j *job) more(ctx context.Context) error {
	select {
	case <-j.bell:
	case <-ctx.Done():
		return ctx.Err()
	case <-j.rank.server.life.Done():
		return errClosed
	}
	if j.rejected.Load() {
		return errRejected
	}
	return nil
}

// rest waits until all tokens have come.
func (j *job) rest(ctx context.Context, _ int) error {
	for i := range j.sequences {
		s := &j.sequences[i]
		for s.due.Load() < int64(s.tokens) {
			if err := j.more(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// over reports whether all tokens have come.
func (j *job) over() bool {
	for i := range j.sequences {
		if s := &j.sequences[i]; s.due.Load() < int64(s.tokens) {
			return false
		}
	}
	return true
}

// sent notes how late the tokens are that are being sent.
func (j *job) sent() {
	s := j.rank.server
	if s.cfg.Clock == nil {
		now := s.now()
		j.rank.late.note(now, now-time.Duration(j.modelled.Load()))
	}
}

// due returns how many tokens of choice i have come.
func (j *job) due(i int) int { return int(j.sequences[i].due.Load()) }

// contents names the blocks of a sequence: those of the prompt, which its choices
// share, and those that the answer completes.
type contents struct {
	prompt, answer []kv.Block
	wording        *wording // nil where nobody wants to know
}

// Block implements [simengine.Content].
func (c *contents) Block(i int) kv.Block {
	if i < len(c.prompt) {
		return c.prompt[i]
	}
	return c.answer[i-len(c.prompt)]
}

// blockWriter makes blocks of tokens as they come.
type blockWriter struct {
	seed  uint64
	size  int
	tail  []uint32 // tokens after the last full block
	out   []kv.Block
	last  kv.BlockID
	chain bool // there is a block before
	keep  bool // the tokens are to be kept
	ids   []uint32
}

// follow starts after a prompt whose full blocks are given.
func (b *blockWriter) follow(seed uint64, size int, prompt []uint32, full []kv.Block) {
	*b = blockWriter{seed: seed, size: size, tail: make([]uint32, 0, size), keep: b.keep}
	if n := len(full); n > 0 {
		b.last, b.chain = full[n-1].ID, true
	}
	b.tail = append(b.tail, prompt[len(full)*size:]...)
}

// push takes one more token.
func (b *blockWriter) push(id uint32) {
	b.tail = append(b.tail, id)
	if b.keep {
		b.ids = append(b.ids, id)
	}
	if len(b.tail) < b.size {
		return
	}
	block := kv.Block{Tokens: kv.HashTokens(b.seed, b.tail)}
	block.ID = kv.BlockID(block.Tokens)
	if b.chain {
		block.ID = kv.Chain(b.last, block.Tokens)
	}
	b.last, b.chain, b.tail = block.ID, true, b.tail[:0]
	b.out = append(b.out, block)
}
