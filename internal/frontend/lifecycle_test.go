package frontend

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/trace"
)

var lifecycleSeeds = flag.Int("lifecycle.seeds", 12, "how many seeds TestLifecycle runs")

// chaos decides what goes wrong. Its source is shared by many goroutines.
type chaos struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chaos) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// fault is an engine that misbehaves in one request of three.
func (c *chaos) fault(w http.ResponseWriter, r *http.Request, next http.Handler) {
	dice := c.intN(24)
	if dice < 8 {
		io.Copy(io.Discard, r.Body) // so that net/http notices a client that leaves
	}
	switch dice {
	case 0:
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case 1:
		http.Error(w, `{"object":"error","message":"boom","code":500}`, http.StatusInternalServerError)
	case 2: // silent for ever
		<-r.Context().Done()
	case 3: // dies before it answers
		panic(http.ErrAbortHandler)
	case 4: // dies in the middle of a stream
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\ndata: {\"cho")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case 5: // ends early, but politely
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
	case 6: // talks nonsense
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {{{\n\n\r\r\n:::\ndata\n\ndata: [DONE]\n\n")
	case 7: // silent after the first chunk
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		next.ServeHTTP(w, r)
	}
}

// panicky is an engine adapter that panics now and then.
type panicky struct {
	engine.Engine
	*chaos
}

func (p panicky) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if p.intN(40) == 0 {
		panic("adapter")
	}
	return p.Engine.Open(ctx, t, r)
}

// TestLifecycle lets many clients come and go in every way while engines fail in
// every way, and then nothing may be left: no slot, no byte of budget, no
// request in flight, no call that the learner waits for, and no goroutine, which is what the bubble checks at its
// end; connections are goroutines here.
func TestLifecycle(t *testing.T) {
	for seed := range uint64(*lifecycleSeeds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lifecycle(t, seed) })
		})
	}
}

func lifecycle(t *testing.T, seed uint64) {
	ch := &chaos{rng: rand.New(rand.NewPCG(seed, 99))}
	limits := Limits{EngineIdle: 5 * time.Second, Write: 2 * time.Second, BodyTimeout: 3 * time.Second, Budget: 200 << 10}
	front, rows := Config{Limits: limits, Learner: learn.New(learn.Config{MinSamples: 1})}, new(rowLog)
	if seed%2 == 0 {
		front.Trace, front.TraceText = rows, true
	}
	var routing router.Config
	if seed%3 == 0 { // few at a time, so that many wait and some for too long
		class := sched.Class{BusyTokens: new(5), MaxRequests: new(4)}
		routing.Queue = queueOf(class, 700*time.Millisecond)
	}
	rg := newRig(t, rigConfig{
		engines: 3,
		router:  routing,
		sim:     simserver.Config{TTFT: 50 * time.Millisecond, ITL: 10 * time.Millisecond},
		front:   front,
		fault:   ch.fault,
		wrap:    func(e engine.Engine) engine.Engine { return panicky{e, ch} },
	})
	var wg sync.WaitGroup
	for i := range 60 {
		start := time.Duration(ch.intN(4000)) * time.Millisecond
		kind := ch.intN(8)
		wait := time.Duration(ch.intN(600)) * time.Millisecond
		wg.Go(func() {
			time.Sleep(start)
			visit(t, rg, kind, wait, i)
		})
	}
	wg.Go(func() { // engines die and come back
		for range 4 {
			victim := rg.engines[ch.intN(3)]
			time.Sleep(time.Duration(ch.intN(1000)) * time.Millisecond)
			victim.kill()
			time.Sleep(700 * time.Millisecond)
			if err := victim.start(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	synctest.Wait()
	if n := rg.booked(); n != 0 {
		t.Errorf("%d slots still booked", n)
	}
	if n := rg.Inflight(); n != 0 {
		t.Errorf("%d requests still in flight", n)
	}
	if n := rg.body.Load(); n != 0 {
		t.Errorf("%d bytes of the body budget still held", n)
	}
	checkIdle(t, rg.metrics)
	if s := front.Learner.Stats(); s.Running != 0 || s.Families == 0 {
		t.Errorf("the learner is left with %+v", s)
	}
	if front.Trace != nil {
		checkRows(t, rg, rows.all())
	}
	for i, e := range rg.engines {
		if n := e.current().Inflight(); n != 0 {
			t.Errorf("engine %d still works on %d requests", i+1, n)
		}
	}
	rg.stop()
}

// checkRows checks that every request that came left one row and no more.
func checkRows(t *testing.T, rg *rig, rows []*trace.Row) {
	ids := make(map[string]bool)
	outcomes := make(map[trace.Outcome]int)
	for _, r := range rows {
		ids[r.RequestID] = true
		outcomes[r.Outcome]++
		for _, a := range r.Attempts {
			if a.Routing == nil {
				continue
			}
			if c, err := router.Rerun(a.Routing); err != nil || c.WorkerID != a.Routing.Chosen.WorkerID {
				t.Errorf("made again, a decision for %d comes to %d, %v", a.Routing.Chosen.WorkerID, c.WorkerID, err)
			}
		}
	}
	families, err := rg.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, f := range families {
		if f.GetName() == "dynamo_frontend_requests_total" {
			for _, m := range f.GetMetric() {
				requests += int(m.GetCounter().GetValue())
			}
		}
	}
	if len(rows) != requests || len(ids) != requests {
		t.Errorf("%d rows with %d ids of %d requests", len(rows), len(ids), requests)
	}
	for _, o := range []trace.Outcome{trace.OutcomeCompleted, trace.OutcomeCancelled, trace.OutcomeRefused, trace.OutcomeError} {
		if outcomes[o] == 0 {
			t.Errorf("no request was %s: %v", o, outcomes)
		}
		delete(outcomes, o)
	}
	if len(outcomes) != 0 {
		t.Errorf("outcomes that there are not: %v", outcomes)
	}
}

// visit is one client. What it is told does not matter here, only that it is told
// something or left in peace.
func visit(t *testing.T, rg *rig, kind int, wait time.Duration, i int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := kind != 1
	body := fmt.Sprintf(`{"model":"stator-sim","stream":%v,"messages":[{"role":"user","content":"client %d says %s"}],"max_tokens":40}`,
		stream, i, strings.Repeat("x", 1+i*300))
	var reader io.Reader = strings.NewReader(body)
	switch kind {
	case 2: // leaves while it waits
		time.AfterFunc(wait, cancel)
	case 3: // sends its body slowly, and never all of it
		reader = io.MultiReader(strings.NewReader(body[:20]), &sluggish{ctx: ctx})
	case 4: // sends garbage
		reader = strings.NewReader(body[:len(body)/2])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stator/v1/chat/completions", reader)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := rg.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	buf := make([]byte, 200)
	switch kind {
	case 5: // leaves in the middle
		io.ReadFull(resp.Body, buf)
		time.Sleep(wait)
	case 6: // reads slowly
		for {
			time.Sleep(wait / 4)
			if _, err := resp.Body.Read(buf); err != nil {
				return
			}
		}
	case 7: // stops reading, and stays
		io.ReadFull(resp.Body, buf)
		time.Sleep(20 * time.Second)
	default:
		io.Copy(io.Discard, resp.Body)
	}
}

// sluggish gives a byte a second, for ever.
type sluggish struct{ ctx context.Context }

func (s *sluggish) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		p[0] = 'x'
		return 1, nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}
