package simserver

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
)

// rank is one data-parallel rank: the engine model, and what is on its way there
// and back. Times are from the start of the server, or of the virtual clock.
//
// One party at a time drives it, that is, begins and finishes passes when next says
// so: on the wall clock a goroutine that lives while there is work, in virtual time
// whoever lets the clock go on. Everyone else submits jobs and withdraws them.
type rank struct {
	server *Server
	index  int
	booked int // requests being answered; guarded by the server's mutex

	mu     *sync.Mutex // its own, or the virtual clock's; guards the rest
	engine *simengine.Engine
	inbox  []*sequence     // not given to the engine yet, by arrival
	pass   *simengine.Pass // under way, nil between two
	start  time.Duration   // of the pass under way, else of the last one
	end    time.Duration   // of the same
	driven bool            // a goroutine drives it
	stats  stats
	late   lateness // of tokens on the wall clock
	// iterations are what TensorRT-LLM tells of the latest passes, each once.
	iterations [][]byte
	passes     uint64
	waiting    atomic.Int64 // sequences, at the end of the latest pass
	unstarted  int          // prompt tokens of those that never ran

	events  rankEvents // as the engine publishes them; nil for not at all
	batches uint64     // published so far; only for who drives it
}

func newRank(s *Server, index int) *rank {
	r := &rank{server: s, index: index, mu: new(sync.Mutex)}
	if s.cfg.Clock != nil {
		r.mu = &s.cfg.Clock.mu
	}
	r.stats.init(s.cfg.Kind)
	return r
}

// submit queues a job. On the wall clock it arrives now, otherwise when it says,
// which may let the clock go on.
func (r *rank) submit(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.server.cfg.Clock; c != nil {
		c.accept(j)
		return
	}
	j.arrived = r.server.now()
	r.queue(j)
	if !r.driven {
		r.driven = true
		r.server.running.Go(r.run)
	}
}

// load returns how many sequences the rank has.
func (r *rank) load() int { return len(r.inbox) + r.engine.Requests() }

// queue puts the sequences of a job behind those that arrive no later.
func (r *rank) queue(j *job) {
	at := len(r.inbox)
	for at > 0 && r.inbox[at-1].job.arrived > j.arrived {
		at--
	}
	for i := range j.sequences {
		r.inbox = slices.Insert(r.inbox, at+i, &j.sequences[i])
		r.unstarted += j.sequences[i].request.Prompt
	}
}

// started notes that a sequence runs, or never will.
func (r *rank) started(s *sequence) {
	if !s.started {
		s.started = true
		r.unstarted -= s.request.Prompt
	}
}

// withdraw takes back what is left of a job. A pass under way is not changed by
// it.
func (r *rank) withdraw(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.left == 0 {
		return
	}
	j.left = 0
	for i := range j.sequences {
		s := &j.sequences[i]
		if s.done {
			continue
		}
		s.done = true
		r.started(s)
		r.stats.finished[endAbort]++
		if at := slices.Index(r.inbox, s); at >= 0 {
			r.inbox = slices.Delete(r.inbox, at, at+1)
		} else {
			r.engine.Drop(&s.request)
		}
	}
}

// run drives the rank on the wall clock until it has no work. Each pass is timed
// from the end of the one before, not from when this goroutine woke up, so that
// the modelled rate is kept.
func (r *rank) run() {
	s := r.server
	var timer *time.Timer
	for {
		r.mu.Lock()
		at, ok := r.next()
		if !ok {
			r.driven = false
			r.mu.Unlock()
			return
		}
		if s.timeless {
			at = max(at, s.now())
		}
		pass := r.begin(at)
		r.mu.Unlock()

		if s.cfg.EarlyEvents {
			r.publish(pass)
		}
		// What happens while the pass is under way waits for the next one.
		if wait := r.end - s.now(); wait > 0 {
			if timer == nil {
				timer = time.NewTimer(wait)
				defer timer.Stop()
			} else {
				timer.Reset(wait)
			}
			select {
			case <-timer.C:
			case <-s.life.Done():
				return
			}
		} else if s.life.Err() != nil {
			return
		}
		if !s.cfg.EarlyEvents {
			r.publish(pass)
		}
		r.mu.Lock()
		r.finish(max(r.end, s.now()))
		r.mu.Unlock()
	}
}

// next returns when the rank has something to do, and false when it has nothing.
func (r *rank) next() (time.Duration, bool) {
	switch {
	case r.pass != nil, r.engine.Busy():
		return r.end, true
	case len(r.inbox) > 0:
		return max(r.end, r.inbox[0].job.arrived), true
	default:
		return 0, false
	}
}

// begin starts a pass with what has arrived by then. There must be some work.
func (r *rank) begin(at time.Duration) *simengine.Pass {
	n := 0
	for ; n < len(r.inbox) && r.inbox[n].job.arrived <= at; n++ {
		r.engine.Receive(&r.inbox[n].request)
	}
	if n == len(r.inbox) {
		clear(r.inbox)
		r.inbox = r.inbox[:0]
	} else {
		r.inbox = slices.Delete(r.inbox, 0, n)
	}
	r.pass = r.engine.Step()
	r.start, r.end = at, at+r.pass.Duration
	return r.pass
}

// finish ends the pass under way and hands out what came of it. It was heard of
// at that time, which is later than the end of the pass when the machine is too
// slow for the model.
func (r *rank) finish(at time.Duration) {
	p := r.pass
	r.pass = nil
	r.stats.pass(p)
	r.passes++
	r.late.note(at, at-r.end)
	for _, a := range p.Admissions {
		s := a.Request.Owner.(*sequence)
		r.started(s)
		if !a.Again && !s.done {
			r.stats.admitted(s, a.Cached, r.start)
		}
	}
	for _, rejected := range p.Rejected {
		s := rejected.Owner.(*sequence)
		r.started(s)
		if s.done {
			continue
		}
		s.done = true
		s.job.left--
		s.job.rejected.Store(true)
		s.job.wake()
	}
	for i := range p.Outputs {
		o := &p.Outputs[i]
		if s := o.Request.Owner.(*sequence); !s.done { // else its client has gone
			r.stats.output(s, o, at)
			s.output(o, r.end, at)
			if c := r.server.cfg.Clock; c != nil && s.job.left == 0 {
				c.completed++
			}
		}
	}
	if r.server.cfg.Dress == DressTRTLLM {
		r.iterated(p)
	}
}

// publish hands out the changes of the cache.
func (r *rank) publish(p *simengine.Pass) {
	if r.events != nil {
		r.events.publish(p)
	}
	if r.server.cfg.Events == nil || len(p.Events) == 0 {
		return
	}
	b := &kv.Batch{
		Source: kv.Source{Worker: r.server.cfg.Worker, Rank: uint32(r.index)},
		Epoch:  r.server.cfg.Epoch + r.server.life.now.Load().number,
		Seq:    r.batches,
		Events: slices.Clone(p.Events),
	}
	r.batches++
	n := 0
	for i := range b.Events {
		n += len(b.Events[i].Blocks)
	}
	blocks := make([]kv.Block, 0, n)
	for i := range b.Events {
		e := &b.Events[i]
		at := len(blocks)
		blocks = append(blocks, e.Blocks...)
		e.Blocks = blocks[at:len(blocks):len(blocks)]
	}
	r.server.cfg.Events(b)
}
