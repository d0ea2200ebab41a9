package hints

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

// vector is one of testdata/vectors.json, which the TypeScript client runs as well.
type vector struct {
	Name    string
	Options struct {
		TotalRequests  int `json:"total_requests"`
		OSL            int
		IAT            int
		MaxSensitivity int       `json:"max_sensitivity"`
		Polarity       Polarity  `json:"polarity"`
		Carrier        Carrier   `json:"carrier"`
		CachePin       *CachePin `json:"cache_pin"`
		CacheMode      CacheMode `json:"cache_mode"`
		Compat         Compat    `json:"compat"`
	}
	Context struct {
		Run         string
		Path        []string
		PrefixID    string `json:"prefix_id"`
		Sensitivity []int
		Branch      []string
		// What the program itself expects.
		OutputTokens   int  `json:"output_tokens"`
		RemainingCalls *int `json:"remaining_calls"`
		InterArrivalMS int  `json:"inter_arrival_ms"`
	}
	Prediction *struct {
		Remaining        float64
		RemainingSamples int     `json:"remaining_samples"`
		OSLP90           float64 `json:"osl_p90"`
		OSLSamples       int     `json:"osl_samples"`
		IATMean          float64 `json:"iat_mean"`
		IATSamples       int     `json:"iat_samples"`
		Sensitivity      *int
	}
	CallsBefore int `json:"calls_before"`
	Body, Want  string
}

func readVectors(t *testing.T) (out struct {
	TTL []struct {
		Total, IAT uint64
		Want       string
	}
	Inject []vector
}) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fixed predicts the same for every call.
type fixed struct{ trie.Prediction }

func (f *fixed) Find([]string, int) (*trie.Prediction, bool) { return &f.Prediction, true }

// predicts returns the prediction of remaining calls, tokens and milliseconds, measured n
// times.
func predicts(n int, remaining, osl, iat float64) *fixed {
	return &fixed{trie.Prediction{
		RemainingCalls: trie.Metrics{SampleCount: n, Mean: remaining},
		OutputTokens:   trie.Metrics{SampleCount: n, P90: osl},
		InterArrivalMS: trie.Metrics{SampleCount: n, Mean: iat},
	}}
}

var quiet = WithLogger(slog.New(slog.DiscardHandler))

// wire is a base transport that remembers what was sent.
type wire struct {
	bodies []string
	last   *http.Request
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.last = req
	body := ""
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body.Close()
		body = string(b)
	}
	w.bodies = append(w.bodies, body)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

const chatURL = "http://engine/v1/chat/completions"

// post sends a body the way a client does and returns what reached the wire.
func post(t *testing.T, tr http.RoundTripper, w *wire, ctx context.Context, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, chatURL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return w.bodies[len(w.bodies)-1]
}

func TestVectors(t *testing.T) {
	vectors := readVectors(t)
	for _, v := range vectors.TTL {
		if got := nvext.FormatTTL(nvext.TTL(v.Total, v.IAT)); got != v.Want {
			t.Errorf("ttl of %d × %d ms = %s, want %s", v.Total, v.IAT, got, v.Want)
		}
	}
	for _, v := range vectors.Inject {
		t.Run(v.Name, func(t *testing.T) {
			o := v.Options
			pin := NoPin
			if o.CachePin != nil {
				pin = *o.CachePin
			}
			opts := []Option{
				quiet, WithStatic(o.TotalRequests, o.OSL, o.IAT), WithMaxSensitivity(o.MaxSensitivity),
				WithPolarity(o.Polarity), WithCarrier(o.Carrier), WithCacheControl(pin, o.CacheMode), WithCompat(o.Compat),
			}
			if p := v.Prediction; p != nil {
				opts = append(opts, WithLookup(&fixed{trie.Prediction{
					RemainingCalls:     trie.Metrics{SampleCount: p.RemainingSamples, Mean: p.Remaining},
					OutputTokens:       trie.Metrics{SampleCount: p.OSLSamples, P90: p.OSLP90},
					InterArrivalMS:     trie.Metrics{SampleCount: p.IATSamples, Mean: p.IATMean},
					LatencySensitivity: p.Sensitivity,
				}}))
			}
			w := new(wire)
			tr := NewTransport(w, opts...)
			ctx := WithRun(t.Context(), v.Context.Run)
			for _, name := range v.Context.Path {
				ctx = EnterFunction(ctx, name)
			}
			for _, name := range v.Context.Branch {
				ctx = WithBranch(ctx, name)
			}
			ctx = WithPrefixID(ctx, v.Context.PrefixID)
			for _, n := range v.Context.Sensitivity {
				ctx = WithLatencySensitivity(ctx, n)
			}
			ctx = WithOutputTokens(ctx, v.Context.OutputTokens)
			ctx = WithInterArrival(ctx, time.Duration(v.Context.InterArrivalMS)*time.Millisecond)
			if n := v.Context.RemainingCalls; n != nil {
				ctx = WithRemainingCalls(ctx, *n)
			}
			for range v.CallsBefore {
				post(t, tr, w, ctx, v.Body)
			}
			got := post(t, tr, w, ctx, v.Body)
			if diff := cmp.Diff(v.Want, got); diff != "" {
				t.Errorf("on the wire (-want +got):\n%s", diff)
			}
			if n := w.last.ContentLength; n != int64(len(got)) {
				t.Errorf("Content-Length = %d, want %d", n, len(got))
			}
			again, err := w.last.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(again); string(b) != got {
				t.Errorf("GetBody returns another body")
			}
		})
	}
}
