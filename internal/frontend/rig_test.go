package frontend

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize"
)

const hello = `{"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`

func TestRigAnswers(t *testing.T) {
	rg := newRig(t, rigConfig{engines: 2})
	resp, body := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 200 || !strings.Contains(body, `"completion_tokens":3`) {
		t.Fatalf("status %d, body %s", resp.StatusCode, body)
	}
	_, body = rg.post(t, "/v1/chat/completions", strings.Replace(hello, `{`, `{"stream":true,`, 1))
	if !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Fatalf("stream: %s", body)
	}
	if n := rg.booked(); n != 0 {
		t.Errorf("%d slots still booked", n)
	}
}

// TestContextLength is vector 15: a prompt must leave room for an answer.
func TestContextLength(t *testing.T) {
	rows := []struct {
		limit, tokens int
		ok            bool
	}{
		{4096, 4095, true},
		{4096, 4096, false},
		{4096, 5000, false},
		{0, 1 << 20, true},
	}
	for _, row := range rows {
		c := &call{
			model:  &router.Model{ContextLength: row.limit},
			prompt: tokenize.Result{IDs: make([]uint32, row.tokens), Source: tokenize.Local},
			req:    &openai.Request{},
		}
		if err := c.checkContext(); (err == nil) != row.ok {
			t.Errorf("%d tokens with a limit of %d: %v", row.tokens, row.limit, err)
		}
	}
}

func TestGreedSampling(t *testing.T) {
	var got string
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		r.Body = io.NopCloser(strings.NewReader(got))
		next.ServeHTTP(w, r)
	}})
	const request = `{"model":"stator-sim","temperature":0.7,"top_k":40,"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"nvext":{"greed_sampling":true}}`
	const want = `{"model":"stator-sim","temperature":0,"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"top_p":1}`
	if resp, body := rg.post(t, "/v1/chat/completions", request); resp.StatusCode != 200 || got != want {
		t.Errorf("status %d %s\nengine saw %s\nwant       %s", resp.StatusCode, body, got, want)
	}
}

// TestEndOfStreamAfterALongSilence: what the server says itself at the end of a
// stream has a time limit of its own.
func TestEndOfStreamAfterALongSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunk = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
		rg := newRig(t, rigConfig{
			front: Config{Limits: Limits{Write: time.Second}},
			fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, chunk)
				w.(http.Flusher).Flush()
				time.Sleep(time.Minute)
			},
		})
		if _, body := rg.post(t, "/v1/chat/completions", helloStream); body != chunk+"data: [DONE]\n\n" {
			t.Errorf("got %q", body)
		}
		rg.stop()
	})
}

// newBusyRig returns one whose only worker is past its threshold for a minute, as it
// computes the prompt of a request. It is for a bubble of virtual time.
func newBusyRig(t *testing.T) *rig {
	limit := uint64(1)
	rg := newRig(t, rigConfig{
		sim:    simserver.Config{TTFT: time.Minute},
		router: router.Config{Thresholds: router.Thresholds{PrefillTokens: &limit}},
	})
	first := rg.request(t, "/v1/chat/completions", hello)
	go func() {
		if resp, err := rg.client.Do(first); err == nil {
			resp.Body.Close()
		}
	}()
	synctest.Wait()
	return rg
}

// TestBusyServerIsReady: shedding is no reason to send everyone elsewhere.
func TestBusyServerIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newBusyRig(t)
		if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 503 {
			t.Errorf("over the threshold: %d %s", resp.StatusCode, body)
		}
		if resp, body := rg.get(t, "/ready"); resp.StatusCode != 200 {
			t.Errorf("/ready: %d %s", resp.StatusCode, body)
		}
		if _, body := rg.get(t, "/metrics"); !strings.Contains(body, `stator_workers{model="stator-sim",state="overloaded"} 1`) {
			t.Error("the overloaded worker does not show in /metrics")
		}
		time.Sleep(2 * time.Minute)
		rg.stop()
	})
}

// TestWholeAnswersHaveNoLatencies: when the tokens of a unary answer came is not
// known, and its whole duration is no substitute.
func TestWholeAnswersHaveNoLatencies(t *testing.T) {
	rg := newRig(t, rigConfig{sim: simserver.Config{BlockSize: 2}})
	rg.post(t, "/v1/chat/completions", hello)
	_, text := rg.get(t, "/metrics")
	for _, want := range []string{
		`dynamo_frontend_time_to_first_token_seconds_count{model="stator-sim"} 0`,
		`dynamo_frontend_inter_token_latency_seconds_count{model="stator-sim"} 0`,
		`dynamo_frontend_output_tokens_total{model="stator-sim"} 3`,
		`dynamo_component_router_time_to_first_token_seconds_count{dynamo_component="backend",dynamo_namespace="dynamo",model="stator-sim",router_id="0"} 0`,
		`dynamo_component_router_inter_token_latency_seconds_count{dynamo_component="backend",dynamo_namespace="dynamo",model="stator-sim",router_id="0"} 0`,
		`dynamo_component_router_output_sequence_tokens_sum{dynamo_component="backend",dynamo_namespace="dynamo",model="stator-sim",router_id="0"} 3`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// TestEveryHistogramIsFed sends what traffic there is and looks for histograms
// that nobody feeds.
func TestEveryHistogramIsFed(t *testing.T) {
	later := map[string]string{
		"dynamo_router_overhead_block_hashing_ms":     "blocks are hashed while the prompt is tokenized",
		"dynamo_router_overhead_seq_hashing_ms":       "sequences are hashed with their blocks",
		"dynamo_component_router_overlap_blocks_lost": "the only worker has all there is",
	}
	rg := newRig(t, rigConfig{sim: simserver.Config{Vocabulary: simserver.Qwen3, BlockSize: 2, Engine: &simengine.Config{Timing: simengine.Fixed{}}}})
	rg.post(t, "/v1/chat/completions", strings.Replace(hello, `{`, `{"stream":true,"stream_options":{"include_usage":true},"nvext":{"annotations":["token_ids"]},`, 1))
	families, err := rg.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM || !strings.HasPrefix(f.GetName(), "dynamo_") && !strings.HasPrefix(f.GetName(), "stator_") {
			continue
		}
		var n uint64
		for _, m := range f.GetMetric() {
			n += m.GetHistogram().GetSampleCount()
		}
		if _, excused := later[f.GetName()]; (n == 0) != excused {
			t.Errorf("%s has %d samples, excused: %v", f.GetName(), n, excused)
		}
	}
}
