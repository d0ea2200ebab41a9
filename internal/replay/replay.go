package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/trace"
)

// Config says what to run a trace against.
type Config struct {
	// Engines is the number of engines, with the worker ids 1, 2, …; at least 1.
	Engines int
	// Ranks is the number of ranks of each; 0 means 1.
	Ranks int
	// Engine describes every rank. Its role must be aggregated.
	Engine simengine.Config
	// Router places the requests. Its clock is set, and its seed is 1 unless
	// given: chance has a part in a replay only by a number that is known. Where it
	// has a queue, requests wait for as long as it takes.
	Router router.Config
	// KnownOutput tells the router how long each answer will be. Otherwise it
	// expects what the trace's hints say, if anything.
	KnownOutput bool
	// Prepare, if not nil, may change request i of the trace on its way to the router:
	// whose it is, how urgent, where it may go. Model and prompt are not to be changed,
	// and nothing of the request is to be kept.
	Prepare func(i int, q *router.Request)
	// Events, if not nil, is told of every change of a cache when the pass that
	// made it ends, before its tokens; with EarlyEvents when the pass begins. The
	// router hears of it at the same time in mode kv. An error that Events returns
	// ends the run.
	Events      kv.Applier
	EarlyEvents bool
	// Slow, if not nil, returns how many times as long as it should a pass of a rank takes
	// that begins now. The router is not told.
	Slow func(rank kv.Source, now time.Duration) float64
	// Log, if not nil, gets a line for every decision, token and cache event.
	Log io.Writer
}

// Run replays a trace and returns when its last request has ended, or with an
// error when ctx does.
func Run(ctx context.Context, cfg Config, tr *trace.Trace) (*Report, error) {
	if cfg.Engines < 1 {
		return nil, fmt.Errorf("replay: engines: expected at least 1, got %d", cfg.Engines)
	}
	if cfg.Engine.Role != "" && cfg.Engine.Role != simengine.Aggregated {
		return nil, fmt.Errorf("replay: role: expected %s, got %s", simengine.Aggregated, cfg.Engine.Role)
	}
	if len(tr.Requests) == 0 {
		return nil, fmt.Errorf("replay: %w", trace.ErrEmpty)
	}
	cfg.Ranks = max(cfg.Ranks, 1)
	r := &run{cfg: cfg, trace: tr, ctx: ctx}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer r.router.Close()
	if err := r.loop(); err != nil {
		return nil, fmt.Errorf("replay: at %v: %w", r.now, err)
	}
	return r.report(), nil
}

// run is a replay under way.
type run struct {
	cfg    Config
	ctx    context.Context
	trace  *trace.Trace
	router *router.Router
	model  *router.Model
	now    time.Duration

	engines  []rankEngine // in the order of worker and rank
	ends     eventHeap    // of passes
	begun    uint64       // passes
	idle     []bool       // engines that may have work to begin with
	starts   []int        // their indexes, to be sorted
	arrivals []int        // requests by arrival, those that follow another left out
	arrived  int
	ready    eventHeap // requests whose predecessor has been answered
	follower []int     // the request that follows each, -1 for none

	requests   []simengine.Request
	contents   []trace.Content
	placements []router.Placement
	results    []Result
	blockSize  int
	caches     bool          // the router goes by caches
	asking     int           // requests that the router has not decided on
	decided    []*submission // on which it has, to be delivered
	spare      []*submission

	gaps sketch
	err  error // of Events, the first
	out  Report
}

// rankEngine is one rank and the pass it is in.
type rankEngine struct {
	engine *simengine.Engine
	source kv.Source
	pass   *simengine.Pass // nil while idle
	seq    uint64          // of batches of events
}

// engineOf returns the index of the engine of a rank.
func (r *run) engineOf(w kv.WorkerID, rank uint32) int {
	return (int(w)-1)*r.cfg.Ranks + int(rank)
}

const modelName = "sim"

// epoch is the instant that the router takes for the start of the run.
var epoch = time.Unix(0, 0)

func (r *run) open() error {
	n := r.cfg.Engines * r.cfg.Ranks
	r.engines = make([]rankEngine, n)
	r.idle = make([]bool, n)
	for i := range r.engines {
		e, err := simengine.New(r.cfg.Engine)
		if err != nil {
			return err
		}
		r.engines[i] = rankEngine{engine: e, source: kv.Source{Worker: kv.WorkerID(i/r.cfg.Ranks + 1), Rank: uint32(i % r.cfg.Ranks)}}
	}
	rc := r.cfg.Router
	rc.Now = func() time.Time { return epoch.Add(r.now) }
	if rc.Seed == 0 {
		rc.Seed = 1
	}
	rc.Virtual = true
	rc.ProbeInterval = 1 << 62 // a simulated engine is always well
	r.router = router.New(rc)
	r.caches = r.router.Mode() == router.KV
	ec := r.engines[0].engine.Config()
	info := engine.Info{Kind: "sim", Models: []engine.Model{{
		ID:               modelName,
		BlockSize:        ec.BlockSize,
		TotalBlocks:      ec.Blocks,
		MaxBatchedTokens: ec.MaxBatchedTokens,
		Ranks:            r.cfg.Ranks,
	}}}
	for w := range r.cfg.Engines {
		spec := router.Spec{ID: kv.WorkerID(w + 1), Name: fmt.Sprintf("sim-%d", w+1), Engine: fixedEngine{info}, Events: true}
		if err := r.router.Add(spec); err != nil {
			r.router.Close()
			return err
		}
	}
	r.router.WaitChecked(r.ctx)
	var err error
	if r.model, err = r.router.Lookup(modelName); err != nil {
		r.router.Close()
		return errors.Join(err, r.ctx.Err())
	}
	r.blockSize = ec.BlockSize
	r.schedule()
	return nil
}

// schedule lays out the requests.
func (r *run) schedule() {
	n := len(r.trace.Requests)
	r.requests = make([]simengine.Request, n)
	r.contents = make([]trace.Content, n)
	r.placements = make([]router.Placement, n)
	r.results = make([]Result, n)
	r.follower = make([]int, n)
	for i := range r.follower {
		r.follower[i] = -1
	}
	for i, before := range r.trace.Previous() {
		if before >= 0 {
			r.follower[before] = i
		} else {
			r.arrivals = append(r.arrivals, i)
		}
		q := &r.trace.Requests[i]
		r.contents[i] = r.trace.Content(i, r.blockSize)
		r.requests[i] = simengine.Request{ID: uint64(i), Prompt: q.Input, MaxOutput: max(q.Output, 1), Content: &r.contents[i]}
	}
	slices.SortStableFunc(r.arrivals, func(a, b int) int {
		return cmp.Compare(r.trace.Requests[a].Arrival, r.trace.Requests[b].Arrival)
	})
}

// loop runs until no event is left.
func (r *run) loop() error {
	steps := 0
	for r.next() {
		for {
			if r.err != nil {
				return r.err
			}
			if steps++; steps%1024 == 0 && r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			for len(r.ends) > 0 && r.ends[0].at <= r.now {
				if err := r.finish(r.ends.pop().index); err != nil {
					return err
				}
			}
			if err := r.arrive(); err != nil {
				return err
			}
			r.begin()
			if len(r.ends) == 0 || r.ends[0].at > r.now {
				break // no pass of no length is left
			}
		}
	}
	if r.asking > 0 {
		return fmt.Errorf("the router lets %d requests wait and nothing happens any more", r.asking)
	}
	for i := range r.engines {
		if e := &r.engines[i]; e.engine.Requests() > 0 {
			return fmt.Errorf("worker %d rank %d has %d requests and nothing happens any more", e.source.Worker, e.source.Rank, e.engine.Requests())
		}
	}
	return cmp.Or(r.err, r.ctx.Err())
}

// next moves the clock to the next event and reports whether there is one.
func (r *run) next() bool {
	at := time.Duration(1<<63 - 1)
	any := false
	consider := func(t time.Duration) { at, any = min(at, t), true }
	if len(r.ends) > 0 {
		consider(r.ends[0].at)
	}
	if r.arrived < len(r.arrivals) {
		consider(r.trace.Requests[r.arrivals[r.arrived]].Arrival)
	}
	if len(r.ready) > 0 {
		consider(r.ready[0].at)
	}
	if any {
		r.now = max(r.now, at)
	}
	return any
}

// arrive places every request that has come, in the order of their times and then
// of the trace.
func (r *run) arrive() error {
	for {
		var first event
		found := false
		if r.arrived < len(r.arrivals) {
			i := r.arrivals[r.arrived]
			first = event{at: r.trace.Requests[i].Arrival, order: uint64(i), index: i}
			found = first.at <= r.now
		}
		if len(r.ready) > 0 && r.ready[0].at <= r.now && (!found || r.ready[0].before(first)) {
			first = r.ready.pop()
		} else if found {
			r.arrived++
		} else {
			return nil
		}
		if err := r.place(first.index); err != nil {
			return err
		}
	}
}

// wake notes that an engine may have work.
func (r *run) wake(at int) {
	if !r.idle[at] {
		r.idle[at] = true
		r.starts = append(r.starts, at)
	}
}

// begin starts a pass on every idle engine that has work.
func (r *run) begin() {
	slices.Sort(r.starts)
	for _, at := range r.starts {
		r.idle[at] = false
		e := &r.engines[at]
		if e.pass != nil || !e.engine.Busy() {
			continue
		}
		e.pass = e.engine.Step()
		r.begun++
		r.out.Passes++
		r.out.Preemptions += e.pass.Preempted
		for _, a := range e.pass.Admissions {
			if res := &r.results[a.Request.ID]; !a.Again {
				res.Admitted, res.Cached = r.now, a.Cached
			}
		}
		if r.cfg.EarlyEvents {
			r.tell(e)
		}
		takes := e.pass.Duration
		if r.cfg.Slow != nil {
			takes = time.Duration(float64(takes) * r.cfg.Slow(e.source, r.now))
		}
		r.ends.push(event{at: r.now + takes, order: r.begun, index: at})
	}
	r.starts = r.starts[:0]
}

// finish ends the pass of an engine: its cache has changed and its tokens are
// there. What the router makes of the room is delivered then.
func (r *run) finish(at int) error {
	e := &r.engines[at]
	if !r.cfg.EarlyEvents {
		r.tell(e)
	}
	for _, o := range e.pass.Outputs {
		r.output(e, &o)
	}
	for _, q := range e.pass.Rejected {
		i := int(q.ID)
		r.out.Rejected++
		r.logf("reject %d\n", i)
		r.placements[i].Done(router.Completed)
		r.follow(i)
	}
	e.pass = nil
	r.wake(at)
	return r.deliver()
}

// output notes the tokens that a request got.
func (r *run) output(e *rankEngine, o *simengine.Output) {
	i := int(o.Request.ID)
	res, p := &r.results[i], &r.placements[i]
	if r.cfg.Log != nil { // or the arguments would be allocated
		r.logf("token %d from %d/%d: %d, done %v\n", i, e.source.Worker, e.source.Rank, o.Tokens, o.Done)
	}
	if res.Output == 0 {
		res.First = r.now
		p.FirstToken()
	} else {
		r.gaps.add(r.now - res.Last)
		if res.Second == 0 {
			res.Second = r.now
		}
	}
	for range o.Tokens - 1 {
		r.gaps.add(0) // tokens that came together
	}
	res.Last = r.now
	res.Output += o.Tokens
	p.Output(o.Tokens)
	if o.Done {
		res.Done = true
		r.settle(i)
		p.Done(router.Completed)
		r.follow(i)
	}
}

// follow has the request after i in its session come in its time.
func (r *run) follow(i int) {
	if next := r.follower[i]; next >= 0 {
		r.ready.push(event{at: r.now + r.trace.Requests[next].Delay, order: uint64(next), index: next})
	}
}

// tell publishes the cache events of an engine's pass.
func (r *run) tell(e *rankEngine) {
	if len(e.pass.Events) == 0 {
		return
	}
	if r.cfg.Log != nil {
		for _, ev := range e.pass.Events {
			r.logf("cache of %d/%d: %v\n", e.source.Worker, e.source.Rank, ev)
		}
	}
	batch := kv.Batch{Source: e.source, Seq: e.seq, Events: e.pass.Events}
	e.seq++
	if r.caches {
		r.router.Apply(&batch) // keeps nothing of it
	}
	if r.cfg.Events == nil {
		return
	}
	own := batch // the receiver's
	own.Events = slices.Clone(batch.Events)
	for i := range own.Events {
		own.Events[i].Blocks = slices.Clone(own.Events[i].Blocks)
	}
	if err := r.cfg.Events.Apply(&own); err != nil && r.err == nil {
		r.err = fmt.Errorf("events of worker %d rank %d: %w", e.source.Worker, e.source.Rank, err)
	}
}

func (r *run) logf(format string, args ...any) {
	if r.cfg.Log != nil {
		fmt.Fprintf(r.cfg.Log, "%d "+format, append([]any{int64(r.now)}, args...)...)
	}
}

// fixedEngine is an engine to the router: one that is there, says what it serves
// and is never asked for more.
type fixedEngine struct{ info engine.Info }

var errVirtual = errors.New("an engine of a replay serves no requests")

func (e fixedEngine) Identify(context.Context) (*engine.Info, error) {
	info := e.info
	info.Models = slices.Clone(info.Models)
	return &info, nil
}

func (fixedEngine) Probe(context.Context) error { return nil }

func (fixedEngine) Open(context.Context, engine.Target, *engine.Request) (*engine.Response, error) {
	return nil, errVirtual
}

func (fixedEngine) Close() {}
