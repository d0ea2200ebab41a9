package simserver

import (
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/stator-ai/stator/internal/simengine"
)

// scrape reads the metrics of s with Prometheus' own parser.
func scrape(t *testing.T, s *Server) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	text := call(s, "GET", "/metrics", "").Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return families, text
}

// traffic gives the metrics something to show: a prompt twice, a client that goes
// away, one that is still there, and one that waits.
func traffic(t *testing.T, s *Server) {
	_, client := serve(t, s)
	post := func(body string) {
		resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		synctest.Wait()
	}
	long := `"` + strings.Repeat("x", 100) + `"`
	post(`{"prompt":` + long + `,"max_tokens":5}`)
	post(`{"prompt":` + long + `,"max_tokens":5}`)
	post(`{"prompt":"s","stop":" "}`)
	resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(`{"prompt":"gone","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	synctest.Wait()
	time.Sleep(time.Second)
	post(`{"prompt":` + long + `,"max_tokens":50,"stream":true}`)
	post(`{"prompt":` + long + `,"max_tokens":50,"stream":true}`)
	post(`{"prompt":"waits","max_tokens":50,"stream":true}`)
	time.Sleep(25 * time.Millisecond)
	synctest.Wait()
}

// TestMetricsText holds every line of the metrics after some traffic. Run with
// -rewrite after a change.
func TestMetricsText(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
	}{
		{"vllm", modelled(Config{Vocabulary: Bytes}, 20*time.Millisecond, 5*time.Millisecond)},
		{"sglang", modelled(Config{Vocabulary: Bytes, Kind: simengine.SGLang}, 20*time.Millisecond, 5*time.Millisecond)},
		{"fixed", Config{Vocabulary: Bytes, TTFT: 20 * time.Millisecond, ITL: 5 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := "testdata/metrics_" + tc.name + ".txt"
				tc.cfg.Model, tc.cfg.TotalBlocks = `a "b"`, 100
				if tc.cfg.Engine != nil {
					tc.cfg.Engine.MaxSeqs = 2
				}
				s := newServer(t, tc.cfg)
				traffic(t, s)
				families, text := scrape(t, s)
				for name, f := range families {
					for _, m := range f.GetMetric() {
						if l := m.GetLabel(); len(l) < 2 {
							t.Errorf("%s has the labels %v", name, l)
						}
					}
				}
				if *rewrite {
					if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
					return
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestMetricsValues compares what the series say with what happened.
func TestMetricsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, modelled(Config{Ranks: 2, TotalBlocks: 100}, 20*time.Millisecond, 5*time.Millisecond))
		_, client := serve(t, s)
		const body = `{"prompt":"0123456789012345678901234567890123456789","max_tokens":11,"ignore_eos":true}`
		for range 2 {
			resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		go client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
		synctest.Wait() // its first pass is under way
		families, _ := scrape(t, s)
		value := func(name string, rank int) float64 {
			t.Helper()
			f := families[name]
			if f == nil || len(f.GetMetric()) <= rank {
				t.Fatalf("no %s", name)
			}
			m := f.GetMetric()[rank]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		for _, tc := range []struct {
			name string
			want float64
		}{
			{"vllm:num_requests_running", 1},
			{"vllm:num_requests_waiting", 0},
			{"vllm:kv_cache_usage_perc", 0.03},
			{"vllm:gpu_cache_usage_perc", 0.03},
			{"vllm:prompt_tokens_total", 80},
			{"vllm:prefix_cache_queries_total", 80},
			{"vllm:prefix_cache_hits_total", 32},
			{"vllm:generation_tokens_total", 22},
			{"vllm:num_preemptions_total", 0},
			{"stator_sim_lag_seconds", 0},
		} {
			if got := value(tc.name, 0); got != tc.want {
				t.Errorf("%s = %v, want %v", tc.name, got, tc.want)
			}
			if got := value(tc.name, 1); got != 0 {
				t.Errorf("%s of the idle rank = %v", tc.name, got)
			}
		}
		for name, want := range map[string]struct {
			n   uint64
			sum float64
		}{
			"vllm:time_to_first_token_seconds": {2, 0.05},
			"vllm:inter_token_latency_seconds": {20, 0.1},
			"vllm:e2e_request_latency_seconds": {2, 0.15},
			"vllm:request_queue_time_seconds":  {2, 0},
		} {
			h := families[name].GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != want.n || math.Abs(h.GetSampleSum()-want.sum) > 1e-9 {
				t.Errorf("%s: %d samples, sum %v, want %d, %v", name, h.GetSampleCount(), h.GetSampleSum(), want.n, want.sum)
			}
			for i, b := range h.GetBucket() {
				if i > 0 && b.GetCumulativeCount() < h.GetBucket()[i-1].GetCumulativeCount() {
					t.Errorf("%s: the buckets do not add up", name)
				}
			}
		}
	})
}

// TestPreemptionsCount has two answers that do not fit side by side.
func TestPreemptionsCount(t *testing.T) {
	for kind, name := range map[simengine.Kind]string{
		simengine.VLLM:   "vllm:num_preemptions_total",
		simengine.SGLang: "sglang:num_retracted_requests_total",
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := modelled(Config{Kind: kind, BlockSize: 4, TotalBlocks: 12, ContextLength: 48}, 9*time.Millisecond, time.Millisecond)
			cfg.Engine.SGLang.Conservativeness = 0.01 // or the second would wait for room
			s := newServer(t, cfg)
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() { call(s, "POST", textPath, arrival{0, numbers(i*20, 8), 20}.body()) })
			}
			wg.Wait()
			text := call(s, "GET", "/metrics", "").Body.String()
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, name+"{") && strings.HasSuffix(line, "} 1\n") {
					return
				}
			}
			t.Errorf("%s is not 1:\n%s", name, grep(text, name))
		})
	}
}
