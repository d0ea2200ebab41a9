package metrics

import (
	"strings"
	"sync"
	"testing"
)

func TestModelIsCached(t *testing.T) {
	s := New(Options{})
	m := s.Model("Qwen/Qwen3")
	if got := s.Model("Qwen/Qwen3"); got != m {
		t.Error("a second call returned another Model")
	}
	if n := testing.AllocsPerRun(100, func() { s.Model("Qwen/Qwen3") }); n != 0 {
		t.Errorf("looking a model up allocates %v times", n)
	}
}

func TestModelLabelCase(t *testing.T) {
	s := New(Options{})
	m := s.Model("Qwen/Qwen3")
	r := m.Start(at(0), EndpointCompletions, false)
	r.Cancelled()
	r.Rejected()
	r.End(at(1), ErrCancelled)
	m.SetInfo(Info{ContextLength: 10})
	for series := range samples(t, s) {
		_, label, ok := strings.Cut(series, `model="`)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(series, "{")
		want := "qwen/qwen3"
		if strings.HasPrefix(name, "dynamo_frontend_model_") {
			want = "Qwen/Qwen3"
		}
		if !strings.HasPrefix(label, want+`"`) {
			t.Errorf("%s: want model %q", series, want)
		}
	}
}

func TestModelNameThatIsNotUTF8(t *testing.T) {
	s := New(Options{})
	m := s.Model("a\xffb")
	if got := s.Model("a\xffb"); got != m {
		t.Error("a second call returned another Model")
	}
	m.Start(at(0), EndpointCompletions, false).End(at(1), ErrNone)
	wantSamples(t, s, map[string]float64{"dynamo_frontend_request_duration_seconds_count{model=\"a\uFFFDb\"}": 1})
	s.DropModel("a\xffb")
	wantNoModel(t, s, "a\uFFFDb")
}

func TestSetInfo(t *testing.T) {
	s := New(Options{})
	m := s.Model("M")
	m.SetInfo(Info{TotalKVBlocks: 1000, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ContextLength: 4096, KVCacheBlockSize: 16, MigrationLimit: 3})
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_model_total_kv_blocks{model="M"}`:        1000,
		`dynamo_frontend_model_max_num_seqs{model="M"}`:           256,
		`dynamo_frontend_model_max_num_batched_tokens{model="M"}`: 8192,
		`dynamo_frontend_model_context_length{model="M"}`:         4096,
		`dynamo_frontend_model_kv_cache_block_size{model="M"}`:    16,
		`dynamo_frontend_model_migration_limit{model="M"}`:        3,
	})
	m.SetInfo(Info{ContextLength: 8192})
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_model_context_length{model="M"}`:  8192,
		`dynamo_frontend_model_migration_limit{model="M"}`: 0,
	})
	wantAbsent(t, s,
		`dynamo_frontend_model_total_kv_blocks{model="M"}`,
		`dynamo_frontend_model_max_num_seqs{model="M"}`,
		`dynamo_frontend_model_max_num_batched_tokens{model="M"}`,
		`dynamo_frontend_model_kv_cache_block_size{model="M"}`)
	m.SetInfo(Info{MigrationLimit: -1})
	wantAbsent(t, s,
		`dynamo_frontend_model_context_length{model="M"}`,
		`dynamo_frontend_model_migration_limit{model="M"}`)
}

// useAll touches every series that belongs to a model.
func useAll(s *Set, m *Model, rt *Router) {
	r := m.Start(at(0), EndpointChatCompletions, true)
	r.Prompt(10)
	r.Tokens(at(1), 1)
	r.Tokens(at(2), 1)
	r.Cached(5)
	r.Cancelled()
	r.Rejected()
	r.End(at(3), ErrCancelled)
	m.SetInfo(Info{TotalKVBlocks: 1, MaxNumSeqs: 1, MaxNumBatchedTokens: 1, ContextLength: 1, KVCacheBlockSize: 1})
	m.SetWorkers(WorkerCounts{Discovered: 1})
	m.Retry(RetryConnect)
	m.Shed(ShedBusy)
	m.EngineError(EngineStatus)
	m.Tokens(5, 5)
	m.TokensSkipped(SkipEngine)
	m.HintInferred(InferredOSL, InferredFromFamily)
	m.InferredOSL(InferredFromFamily, 1, 1)
	rt.Placed(10, 16, 1)
	rt.FirstToken(1)
	rt.Tokens(1, 1)
	rt.Done(2)
	rt.Started()
	rt.Decided("cost")
	rt.OverlapLost(1)
	rt.TextRouted()
	rt.SetLedger(1, 1)
	rt.SetAdapter("poet", 1)
	c := rt.Class("default")
	c.Set(1, 1, 1)
	c.Waited(1)
	c.Left(QueueCancelled)
	c.Rejected(QueueLimitCachedTokens)
}

func TestDropModel(t *testing.T) {
	s := New(Options{})
	keep, keepRouter := s.Model("Kept"), s.Router("Kept", WorkerDecode)
	useAll(s, keep, keepRouter)
	s.Truth("Kept", 1)
	before := len(samples(t, s))
	gone, goneRouter := s.Model("Gone"), s.Router("Gone", WorkerDecode)
	useAll(s, gone, goneRouter)
	underway := gone.Start(at(0), EndpointCompletions, true)
	truth := s.Truth("Gone", 1)

	s.DropModel("Gone")
	wantNoModel(t, s, "Gone")
	if got := len(samples(t, s)); got != before {
		t.Errorf("%d series, want the %d of the other model", got, before)
	}

	// Late callers bring nothing back.
	underway.Tokens(at(1), 3)
	underway.Cancelled()
	underway.End(at(2), ErrNone)
	useAll(s, gone, goneRouter)
	goneRouter.Class("unheard of").Left(QueueTimeout)
	goneRouter.Decided("pinned")
	truth.Record(VerdictAgreed, 1, 1)
	wantNoModel(t, s, "Gone")

	// A model of the same name starts from nothing.
	again := s.Model("Gone")
	if again == gone {
		t.Fatal("Model returned the dropped handle")
	}
	again.Start(at(0), EndpointCompletions, true)
	s.Router("Gone", WorkerDecode).Placed(10, 16, 1)
	if s.Truth("Gone", 1) == truth {
		t.Error("Truth returned the dropped handle")
	}
	goneRouter.Close() // takes nothing from the new one
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_inflight_requests{model="gone"}`:                                                                         1,
		`dynamo_frontend_requests_started_total{endpoint="completions",model="gone",request_type="stream"}`:                       1,
		`dynamo_component_router_requests_total{dynamo_component="backend",dynamo_namespace="dynamo",model="Gone",router_id="0"}`: 1,
		`stator_ledger_blocks{model="Gone"}`:                                                                                      0,
		`stator_cache_verdicts_total{model="Gone",verdict="agreed",worker_id="1"}`:                                                0,
	})

	s.DropModel("never served")
}

func TestDropModelKeepsSharedSeries(t *testing.T) {
	const started = `dynamo_frontend_requests_started_total{endpoint="completions",model="llama",request_type="unary"}`
	s := New(Options{})
	s.Model("Llama").Start(at(0), EndpointCompletions, false)
	lower := s.Model("llama")
	r := lower.Start(at(0), EndpointCompletions, false)
	s.Model("Llama").SetWorkers(WorkerCounts{Routable: 1})
	wantSamples(t, s, map[string]float64{started: 2, `stator_workers{model="Llama",state="routable"}`: 1})

	s.DropModel("Llama")
	r.End(at(1), ErrNone)
	lower.Start(at(0), EndpointCompletions, false)
	wantSamples(t, s, map[string]float64{started: 3, `dynamo_frontend_inflight_requests{model="llama"}`: 2})
	wantAbsent(t, s, `stator_workers{model="Llama",state="routable"}`)

	s.DropModel("llama")
	wantNoModel(t, s, "llama")
}

func TestDropModelConcurrently(t *testing.T) {
	s := New(Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				rt := s.Router("M", WorkerPrefill)
				useAll(s, s.Model("M"), rt)
				s.Truth("M", 1).Record(VerdictAgreed, 1, 1)
				rt.Close()
			}
		})
	}
	for range 50 {
		s.DropModel("M")
	}
	wg.Wait()
	s.DropModel("M")
	wantNoModel(t, s, "M")
}

// wantNoModel checks that no series has the model as a label, in any case.
func wantNoModel(t *testing.T, s *Set, model string) {
	t.Helper()
	for series := range samples(t, s) {
		if strings.Contains(strings.ToLower(series), `model="`+strings.ToLower(model)+`"`) {
			t.Errorf("series left: %s", series)
		}
	}
}
