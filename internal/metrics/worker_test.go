package metrics

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestWorker(t *testing.T) {
	const id = 1<<63 + 5 // larger than a float or a signed integer holds
	s := New(Options{})
	w := s.Worker(id, 2)
	if s.Worker(id, 2) != w {
		t.Error("a second call returned another Worker")
	}
	const labels = `{dp_rank="2",worker_id="9223372036854775813",worker_type="decode"}`
	w.SetLoad(40, 1000)
	w.SetLoad(30, 0)
	w.SetRequests(2)
	wantSamples(t, s, map[string]float64{
		`stator_worker_active_requests` + labels:                    2,
		`dynamo_frontend_worker_active_decode_blocks` + labels:      30,
		`dynamo_frontend_worker_active_prefill_tokens` + labels:     0,
		`stator_inhibitions_total{worker_id="9223372036854775813"}`: 0,
	})
	wantAbsent(t, s,
		`dynamo_frontend_worker_last_time_to_first_token_seconds`+labels,
		`stator_worker_cache_trust`+labels)

	w.Last(250*time.Millisecond, 20*time.Millisecond, 512)
	w.Last(0, 0, 0) // unknown: as before
	w.SetTrust(0.75)
	w.Inhibited()
	s.Worker(id, NoRank).Inhibited()
	s.PrefillWorker(id, 2).SetLoad(0, 7)
	wantSamples(t, s, map[string]float64{
		`dynamo_frontend_worker_last_time_to_first_token_seconds` + labels:                                                 0.25,
		`stator_worker_cache_trust` + labels:                                                                               0.75,
		`dynamo_frontend_worker_last_inter_token_latency_seconds` + labels:                                                 0.02,
		`dynamo_frontend_worker_last_input_sequence_tokens` + labels:                                                       512,
		`dynamo_frontend_worker_active_decode_blocks{dp_rank="none",worker_id="9223372036854775813",worker_type="decode"}`: 0,
		`dynamo_frontend_worker_active_prefill_tokens{dp_rank="2",worker_id="9223372036854775813",worker_type="prefill"}`:  7,
		`stator_inhibitions_total{worker_id="9223372036854775813"}`:                                                        2,
	})
}

func TestDropWorker(t *testing.T) {
	s := New(Options{})
	use := func(w *Worker) {
		w.SetLoad(1, 2)
		w.SetRequests(3)
		w.SetTrust(0.5)
		w.Last(time.Second, time.Second, 3)
		w.Inhibited()
	}
	use(s.Worker(1, 0))
	before := len(samples(t, s))
	old := s.Worker(12, 0)
	use(old)
	use(s.Worker(12, 1))
	use(s.PrefillWorker(12, 0))
	truth := s.Truth("m", 12)
	truth.Record(VerdictAgreed, 1, 1)

	s.DropWorker(12)
	s.DropWorker(12)
	use(old)
	truth.Record(VerdictIndexStale, 1, 0)
	if got := len(samples(t, s)); got != before {
		t.Errorf("%d series, want the %d of the other worker", got, before)
	}

	s.Worker(12, 0)
	wantSamples(t, s, map[string]float64{
		`stator_inhibitions_total{worker_id="12"}`:                                                     0,
		`dynamo_frontend_worker_active_decode_blocks{dp_rank="0",worker_id="12",worker_type="decode"}`: 0,
	})
}

func TestDropWorkerConcurrently(t *testing.T) {
	s := New(Options{})
	m := s.Model("m")
	var wg sync.WaitGroup
	for rank := range uint32(4) {
		wg.Go(func() {
			for range 100 {
				w := s.Worker(1, rank)
				w.SetLoad(1, 1)
				w.SetRequests(1)
				w.SetTrust(1)
				s.Truth("m", 1).Record(VerdictAgreed, 1, 1)
				w.Last(1, 1, 1)
				w.Inhibited()
				g := m.Generate(at(0), PrefixHinted)
				g.Sent(at(1), 1, rank)
				g.Usage(10, 5)
				g.End(at(2), true, 10, 1)
				s.Thompson().Decision(1, 1, 10, 0, Stayed)
				s.Thompson().Feedback(1, 1, 1)
				s.Thompson().Beta(1, 1, 1)
			}
		})
	}
	for range 100 {
		s.DropWorker(1)
	}
	wg.Wait()
	s.DropWorker(1)
	for series := range samples(t, s) {
		if strings.Contains(series, `worker_id="1"`) {
			t.Errorf("series left: %s", series)
		}
	}
}
