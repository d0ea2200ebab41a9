package stator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/nvext"
)

// engineList is what GET /v1/engines answers.
type engineList struct{ Data []frontend.EngineStatus }

// TestFleetFollowsCaches runs two engines of each kind behind a server: prompts that
// begin alike land where the beginning is, and what is predicted is what is found.
func TestFleetFollowsCaches(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, nil), dress(t, d, nil))
		f.acquaint()
		verdicts := func(v nvext.Verdict) float64 {
			return scrape(t, f.client, "stator_cache_verdicts_total", fmt.Sprintf("verdict=%q", v))
		}
		before := verdicts(nvext.VerdictNoReuse)
		home := make(map[string]uint64)
		const docs, rounds = 6, 3
		for round := range rounds {
			for i := range docs {
				doc := fmt.Sprintf("document %d", i)
				got := f.chat(doc, fmt.Sprintf("question %d?", round), streamed)
				if !got.whole() || got.routing == nil {
					t.Fatal(got)
				}
				r := got.routing
				predicted, cached := *r.PredictedCachedTokens, got.cached()
				switch {
				case round == 0:
					home[doc] = r.Chosen.WorkerID
					if predicted != 0 || cached != 0 {
						t.Errorf("%s: %d tokens predicted and %d cached before anybody had seen it", doc, predicted, cached)
					}
				case r.Chosen.WorkerID != home[doc]:
					t.Errorf("%s went to worker %d, and worker %d has it", doc, r.Chosen.WorkerID, home[doc])
				case d == simserver.DressLlamaCpp && (cached < predicted || cached >= predicted+16), // it counts tokens, not blocks
					d != simserver.DressLlamaCpp && cached != predicted, predicted < 200:
					t.Errorf("%s: %d tokens predicted and %d of %d cached", doc, predicted, cached, got.usage.Prompt)
				}
				f.settle()
			}
		}
		if len(slices.Compact(slices.Sorted(maps.Values(home)))) != 2 {
			t.Errorf("%d documents went to one of two idle workers", docs)
		}
		for verdict, want := range map[nvext.Verdict]float64{
			nvext.VerdictNoReuse: before + docs, nvext.VerdictAgreed: docs * (rounds - 1), nvext.VerdictIndexStale: 0,
			nvext.VerdictTokensDiffer: 0, nvext.VerdictUnknown: 0, nvext.VerdictUnforeseen: 0, nvext.VerdictTraded: 0,
		} {
			if got := verdicts(verdict); got != want {
				t.Errorf("%v requests with verdict %s, want %v", got, verdict, want)
			}
		}
		f.showsEngines(d)
	})
}

// showsEngines compares what operators see with what the engines are.
func (f *testFleet) showsEngines(d simserver.Dress) {
	f.t.Helper()
	kind := dresses[d]
	var list engineList
	f.get("/v1/engines", &list)
	if len(list.Data) != len(f.engines) {
		f.t.Fatalf("%d engines are listed, and there are %d", len(list.Data), len(f.engines))
	}
	for i, st := range list.Data {
		e := f.engines[i]
		if st.ID != e.id || st.URL != e.url() || st.Kind != kind || st.Version == "" || st.State != "eligible" || st.Origin != "config" ||
			len(st.Models) != 1 || st.Models[0].ID != dressedModel || st.Ranks != 1 || len(st.Load) != 1 || st.Load[0].Inflight != 0 {
			f.t.Errorf("engine %d: %+v", i, st)
		}
		if st.BlockSize != 16 || st.TotalBlocks == 0 || kind != engine.TRTLLM && st.Load[0].AgeSecs == nil {
			f.t.Errorf("engine %d: sizes and load of %+v", i, st)
		}
		if kind == engine.LlamaCpp {
			if st.Slots != 4 || len(st.Events) != 0 || !hasWarning(&st, "no_events") {
				f.t.Errorf("engine %d: %+v", i, st)
			}
			continue
		}
		if len(st.Events) != 1 || st.Events[0].State != "live" || st.Events[0].Batches == 0 || st.Events[0].Gaps != 0 || st.Events[0].Missed != 0 || st.Events[0].LastSecs == nil {
			f.t.Errorf("engine %d: events %+v", i, st.Events)
		}
		for family, labels := range map[string]string{
			"stator_engine_up":            fmt.Sprintf(`worker_id="%d"`, e.id),
			"stator_engine_info":          fmt.Sprintf(`kind=%q,url=%q.*worker_id="%d"`, kind, e.url(), e.id),
			"stator_event_link":           fmt.Sprintf(`state="live",worker_id="%d"`, e.id),
			"stator_event_batches_total":  fmt.Sprintf(`worker_id="%d"`, e.id),
			"stator_event_received_total": fmt.Sprintf(`worker_id="%d"`, e.id),
		} {
			if scrape(f.t.(*testing.T), f.client, family, labels) == 0 {
				f.t.Errorf("engine %d: no %s", i, family)
			}
		}
	}
}

func hasWarning(st *frontend.EngineStatus, code string) bool {
	return slices.ContainsFunc(st.Warnings, func(w frontend.EngineWarning) bool { return w.Code == code })
}

// acquaint has engines show what they do not say: each runs something, and is known by
// it.
func (f *testFleet) acquaint() {
	f.t.Helper()
	for _, e := range f.engines {
		if got := f.chat(fmt.Sprint("to get acquainted with ", e.id), "?", pinned(e)); !got.whole() {
			f.t.Fatal(got)
		}
		await(f.t, "its sizes and its load are known", func() error {
			st := f.status(e.id)
			if r := st.Ranks[0]; r.BlockSize == 0 || r.TotalBlocks == 0 || r.Reported.IsZero() && st.Info.Kind != engine.TRTLLM { // which tells when it runs
				return fmt.Errorf("worker %d: %+v", e.id, r)
			}
			return nil
		})
	}
	f.settle()
}

// TestBlockSizeIsFoundOut runs engines with blocks of another size than most, which
// some of them state and others only show.
func TestBlockSizeIsFoundOut(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, func(c *simserver.Config) { c.BlockSize = 64 }))
		f.acquaint()
		if got := f.status(1).Ranks[0].BlockSize; got != 64 {
			t.Errorf("a block is taken to have %d tokens", got)
		}
		// What it told before its blocks were known is not forgotten.
		if got := f.chat("to get acquainted with 1", "?", nil); !got.whole() || got.cached() == 0 || *got.routing.PredictedCachedTokens != got.cached() {
			t.Errorf("the first prompt again: %v", got)
		}
		for _, warm := range []bool{false, true} {
			got := f.chat("shared", "?", nil)
			if !got.whole() || *got.routing.PredictedCachedTokens != got.cached() || (got.cached() > 0) != warm || got.cached()%64 != 0 {
				t.Errorf("warm %t: %d tokens predicted, %d cached", warm, *got.routing.PredictedCachedTokens, got.cached())
			}
			f.settle()
		}
	}, simserver.DressVLLM, simserver.DressSGLang, simserver.DressTRTLLM)
}

// TestSeveralKinds has engines of all kinds serve one model.
func TestSeveralKinds(t *testing.T) {
	watchLeaks(t)
	var engines []*dressed
	for _, d := range simserver.Dresses() {
		engines = append(engines, dress(t, simserver.Dress(d), nil))
	}
	f := fleetOf(t, nil, engines...)
	for i := range 24 {
		doc := fmt.Sprint("document ", i%8)
		got := f.chat(doc, fmt.Sprint(i), streamed)
		if !got.whole() || i >= 8 && (got.cached() < 200 || got.routing.OverlapBlocks < 12) {
			t.Errorf("request %d, about %s, to worker %d: %d blocks predicted, %d tokens cached: %v", i, doc, got.routing.Chosen.WorkerID, got.routing.OverlapBlocks, got.cached(), got)
		}
		f.settle()
	}
}

// TestSetEngines changes the list of engines while they work.
func TestSetEngines(t *testing.T) {
	watchLeaks(t)
	slow := func(c *simserver.Config) {
		c.Engine.Timing = simengine.Fixed{PrefillTime: time.Millisecond, DecodeTime: time.Millisecond}
	}
	a, b, c := dress(t, simserver.DressVLLM, nil), dress(t, simserver.DressVLLM, slow), dress(t, simserver.DressSGLang, nil)
	f := fleetOf(t, nil, a, b)
	c.id = 3
	if got := f.chat("shared", "?", pinned(a)); !got.whole() {
		t.Fatal(got)
	}
	f.settle()

	// b goes while it answers: the answer is whole, and nothing of b is left.
	began, ended := make(chan struct{}), make(chan *heard)
	go func() {
		q := explained("long", "?")
		q["model"], q["max_tokens"], q["ignore_eos"] = dressedModel, 300, true
		both(pinned(b), streamed)(q)
		ended <- postContext(t.Context(), f.client, "http://stator/v1/chat/completions", q, func() { close(began) })
	}()
	<-began
	connects := f.link(1, 0).Connects
	if err := f.srv.SetEngines([]EngineConfig{a.config(), c.config()}); err != nil {
		t.Fatal(err)
	}
	if f.status(2) != nil || f.link(2, 0).State != kvlink.None {
		t.Error("an engine that is not in the list is still known")
	}
	if got := f.chat("x", "?", pinned(b)); got.status != http.StatusNotFound && got.status != http.StatusBadRequest {
		t.Errorf("a request pinned to an engine that is not in the list: %v", got)
	}
	if got := <-ended; !got.whole() || got.usage.Completion != 300 {
		t.Errorf("an answer of an engine that went: %v", got)
	}
	f.engines = []*dressed{a, c}
	f.settle()
	if got := f.link(1, 0).Connects; got != connects {
		t.Errorf("an engine that stayed was connected to %d times, and %d before", got, connects)
	}
	if got := f.chat("shared", "?", nil); !got.whole() || got.routing.Chosen.WorkerID != 1 || got.cached() == 0 {
		t.Errorf("what is in the cache of an engine that stayed is not known: %v", got)
	}
	if got := f.chat("x", "?", pinned(c)); !got.whole() {
		t.Errorf("an engine that came: %v", got)
	}

	// A list that makes no sense changes nothing.
	var bad *ConfigError
	if err := f.srv.SetEngines([]EngineConfig{{URL: "nowhere"}}); !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
	f.settle()

	// b comes back, a changes.
	changed := a.config()
	changed.Taints = []string{"changed"}
	if err := f.srv.SetEngines([]EngineConfig{changed, b.config(), c.config()}); err != nil {
		t.Fatal(err)
	}
	f.engines = []*dressed{a, b, c}
	f.settle()
	if got := f.chat("shared", "?", func(q map[string]any) {
		nvextOf(q)["routing_constraints"] = map[string]any{"required_taints": []string{"changed"}}
	}); !got.whole() || got.routing.Chosen.WorkerID != 1 || got.cached() != *got.routing.PredictedCachedTokens || got.cached() == 0 {
		t.Errorf("an engine that was taken up anew: %v", got)
	}
	if err := f.srv.SetEngines(nil); err != nil {
		t.Fatal(err)
	}
	f.engines = nil
	if got := f.chat("x", "?", nil); got.status != http.StatusServiceUnavailable && got.status != http.StatusNotFound {
		t.Errorf("without engines: %v", got)
	}
	if n := len(f.srv.links.Stats()); n != 0 {
		t.Errorf("%d links are left", n)
	}
}

// TestRegistration has engines announce themselves. One that falls silent is forgotten,
// with what was known of its cache.
func TestRegistration(t *testing.T) {
	watchLeaks(t)
	cfg := fleetConfig()
	cfg.Discovery.Register, cfg.Discovery.RegisterTTL = true, 2*time.Second
	f := startFleet(t, cfg)
	a, b := dress(t, simserver.DressVLLM, nil), dress(t, simserver.DressSGLang, nil)
	for i, e := range []*dressed{a, b} {
		e.id = uint64(i + 1)
		if got := f.ask("/v1/engines", map[string]any{"url": e.url(), "id": e.id}); got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	beating, stop := context.WithCancel(t.Context())
	var hearts sync.WaitGroup
	defer hearts.Wait()
	defer stop()
	beat := func(e *dressed) context.CancelFunc {
		ctx, silence := context.WithCancel(beating)
		hearts.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if got := f.heartbeat(e.id); got != http.StatusNoContent && ctx.Err() == nil {
					t.Errorf("heartbeat of %d: status %d", e.id, got)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
		return silence
	}
	beat(a)
	silence := beat(b)
	f.engines = []*dressed{a, b}
	f.settle()
	for _, e := range f.engines {
		if got := f.chat("at home", "?", pinned(e)); !got.whole() {
			t.Fatal(got)
		}
	}
	f.settle()
	silence()
	await(t, "the silent one is forgotten", func() error {
		if f.status(2) != nil {
			return errors.New("it is still there")
		}
		if link := f.link(2, 0); link.State != kvlink.None {
			return fmt.Errorf("its events are followed: %s", link.State)
		}
		return nil
	})
	if f.status(1) == nil {
		t.Fatal("the other one is gone, too")
	}
	if got := f.heartbeat(2); got != http.StatusNotFound {
		t.Errorf("heartbeat of one that was forgotten: status %d", got)
	}
	for i := range 4 {
		if got := f.chat("at home", fmt.Sprint(i), nil); !got.whole() || got.routing.Chosen.WorkerID != 1 {
			t.Errorf("request %d: %v", i, got)
		}
	}
	if got := f.ask("/v1/engines", map[string]any{"url": b.url(), "id": 2}); got.status != http.StatusOK {
		t.Fatal(got)
	}
	beat(b)
	f.settle()
	if got := f.chat("at home", "?", pinned(b)); !got.whole() || got.cached() == 0 || got.cached() != *got.routing.PredictedCachedTokens {
		t.Errorf("after it came back: %v", got)
	}
}

// heartbeat says that an engine is still there and returns the status of the answer.
func (f *testFleet) heartbeat(id uint64) int {
	req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://stator/v1/engines/%d/heartbeat", id), nil)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// nameServer answers with the addresses that it is told.
type nameServer struct {
	conn net.PacketConn
	mu   sync.Mutex
	a    []netip.Addr
	down bool
}

// newNameServer has the names of this process looked up at a server of the test.
func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve()
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		conn.Close()
		<-served
	})
	return s
}

func (s *nameServer) set(down bool, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.a = down, nil
	for _, a := range addrs {
		s.a = append(s.a, netip.MustParseAddr(a))
	}
}

func (s *nameServer) serve() {
	buf := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		s.conn.WriteTo(s.answer(buf[:n]), from)
	}
}

// answer makes a question into its answer: the header, the question, and a record for
// each address if they were asked for.
func (s *nameServer) answer(q []byte) []byte {
	const header, typeA, failure, missing = 12, 1, 2, 3
	end := header
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	if end > len(q) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]byte(nil), q[:end]...)
	out[2], out[3] = 0x81, 0x80 // an answer; recursion was wanted and is to be had
	copy(out[6:header], make([]byte, 6))
	switch {
	case s.down:
		out[3] |= failure
	case len(s.a) == 0:
		out[3] |= missing
	case binary.BigEndian.Uint16(q[end-4:]) == typeA:
		binary.BigEndian.PutUint16(out[6:], uint16(len(s.a)))
		for _, a := range s.a {
			out = append(out, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
			out = append(out, a.AsSlice()...)
		}
	}
	return out
}

// TestNamesAreLookedUp changes the addresses of a name whose engines are served.
func TestNamesAreLookedUp(t *testing.T) {
	watchLeaks(t)
	names := newNameServer(t)
	names.set(false, "127.0.0.1")
	a := dress(t, simserver.DressSGLang, nil)
	b := dress(t, simserver.DressSGLang, nil)
	_, port, _ := net.SplitHostPort(a.addr)
	b.http.Close()
	b.serve("127.0.0.2:" + port)
	cfg := fleetConfig()
	cfg.Discovery.DNSInterval = 20 * time.Millisecond
	cfg.Engines = []EngineConfig{{URL: "dns+http://engines.test:" + port}}
	f := startFleet(t, cfg)
	expect := func(what string, engines ...*dressed) {
		t.Helper()
		await(t, what, func() error {
			all := f.srv.router.Engines()
			if len(all) != len(engines) {
				return fmt.Errorf("%d engines", len(all))
			}
			for _, e := range engines {
				e.id = 0
				for _, st := range all {
					if st.Name == e.url() {
						e.id = uint64(st.ID)
					}
				}
				if e.id == 0 {
					return fmt.Errorf("%s is not there", e.url())
				}
			}
			return nil
		})
		f.engines = engines
		f.settle()
	}
	expect("one address", a)
	if got := f.chat("at home", "?", nil); !got.whole() || got.routing.Chosen.WorkerID != a.id {
		t.Fatal(got)
	}
	names.set(false, "127.0.0.1", "127.0.0.2")
	expect("two addresses", a, b)
	if got := f.chat("at home", "?", nil); !got.whole() || got.routing.Chosen.WorkerID != a.id || got.cached() == 0 {
		t.Errorf("what was known of the first was forgotten: %v", got)
	}
	names.set(true)
	for i := range 20 { // which is longer than it takes to look again
		if got := f.chat(fmt.Sprint("document ", i), "?", pinned([]*dressed{a, b}[i%2])); !got.whole() {
			t.Errorf("while names cannot be looked up: %v", got)
		}
	}
	expect("the same while names cannot be looked up", a, b)
	names.set(false, "127.0.0.2")
	expect("the other address", b)
	if got := f.chat("at home", "?", nil); !got.whole() || got.routing.Chosen.WorkerID != b.id {
		t.Error(got)
	}
	var list engineList
	f.get("/v1/engines", &list)
	if len(list.Data) != 1 || list.Data[0].Origin != "dns" {
		t.Errorf("listed as %+v", list.Data)
	}
}
