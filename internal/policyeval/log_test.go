package policyeval

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// TestAdd leaves out what cannot be evaluated, and says why.
func TestAdd(t *testing.T) {
	routing := func(r *trace.Row) *nvext.Routing { return r.Attempts[0].Routing }
	for _, test := range []struct {
		name   string
		opts   Options
		change func(*trace.Row)
		want   Reason
	}{
		{"as it is", Options{}, func(*trace.Row) {}, ""},
		{"cancelled", Options{}, func(r *trace.Row) { r.Outcome = trace.OutcomeCancelled }, NotCompleted},
		{"two prompts", Options{}, func(r *trace.Row) { r.Prompts = 2 }, Several},
		{"two answers", Options{}, func(r *trace.Row) { r.Choices = 2 }, Several},
		{"refused at once", Options{}, func(r *trace.Row) { r.Outcome, r.Status, r.Attempts = trace.OutcomeRefused, 404, nil }, NotPlaced},
		{"no room for it", Options{}, func(r *trace.Row) {
			r.Outcome, r.Status, r.Attempts = trace.OutcomeRefused, 503, []trace.Attempt{{Failure: "queue_full"}}
		}, NotCompleted},
		{"no routing", Options{}, func(r *trace.Row) { r.Attempts[0].Routing = nil }, NoDecision},
		{"candidates cut", Options{}, func(r *trace.Row) { routing(r).Considered++ }, NoDecision},
		{"placed again", Options{}, func(r *trace.Row) { r.Attempts = append([]trace.Attempt{{Failure: "unreachable"}}, r.Attempts...) }, Retried},
		{"an answer at once, by its whole time", Options{Metric: MetricE2E}, func(r *trace.Row) { r.TTFTMS = nil }, ""},
		{"no first token", Options{}, func(r *trace.Row) { r.TTFTMS = nil }, NoFirstToken},
		{"a first token before the request", Options{}, func(r *trace.Row) { r.TTFTMS = new(nvext.Float(-1)) }, NoFirstToken},
		{"no time between tokens", Options{}, func(r *trace.Row) { r.AvgITLMS = nil }, NoTokenTimes},
		{"one token", Options{}, func(r *trace.Row) { r.AvgITLMS, r.OutputTokens = nil, new(1) }, ""},
		{"one token, by the time between tokens", Options{Metric: MetricITL}, func(r *trace.Row) { r.AvgITLMS, r.OutputTokens = nil, new(1) }, NoTokenTimes},
		{"no end", Options{Metric: MetricE2E}, func(r *trace.Row) { r.TotalTimeMS = nil }, NoTokenTimes},
		{"cache not known", Options{}, func(r *trace.Row) { r.CachedTokens = nil }, NoCachedTokens},
		{"cache not known, taken as empty", Options{UnknownCacheIsZero: true}, func(r *trace.Row) { r.CachedTokens = nil }, ""},
		{"cache not known and of no account", Options{Metric: MetricTTFT}, func(r *trace.Row) { r.CachedTokens = nil }, ""},
		{"another model", Options{Model: "other"}, func(*trace.Row) {}, OtherModel},
		{"chosen is not there", Options{}, func(r *trace.Row) { routing(r).Chosen.WorkerID = 77 }, Inconsistent},
		{"chosen could not be", Options{}, func(r *trace.Row) { routing(r).Chosen.WorkerID = 9 }, Inconsistent},
		{"chosen is not the lowest", Options{}, func(r *trace.Row) {
			for i := range routing(r).Candidates {
				if c := &routing(r).Candidates[i]; c.WorkerID != routing(r).Chosen.WorkerID {
					c.Score = 0
				}
			}
		}, Inconsistent},
		{"probabilities of more than 1", Options{}, func(r *trace.Row) {
			for i := range routing(r).Candidates {
				routing(r).Candidates[i].Propensity = new(nvext.Float(0.5))
			}
		}, Inconsistent},
	} {
		l := NewLog(test.opts)
		row := newWorld(1, 0).row()
		test.change(row)
		l.Add(row)
		want := Skipped{}
		if test.want != "" {
			want[test.want] = 1
		}
		if diff := cmp.Diff(want, l.Skipped()); diff != "" || l.Len() != 1-len(want) {
			t.Errorf("%s: %d decisions, left out (-want +got):\n%s", test.name, l.Len(), diff)
		}
	}
}

// TestValue computes by hand what a row is worth.
func TestValue(t *testing.T) {
	row := newWorld(1, 0).row()
	row.InputTokens, row.EngineInputTokens, row.CachedTokens = 900, new(1000), new(500)
	row.TTFTMS, row.AvgITLMS, row.TotalTimeMS = new(nvext.Float(500)), new(nvext.Float(50)), new(nvext.Float(0))
	check := func(want map[Metric]float64) {
		t.Helper()
		for m, want := range want {
			l := NewLog(Options{Metric: m})
			l.Add(row)
			if l.Len() != 1 || math.Abs(l.decisions[0].value-want) > 1e-12 {
				t.Errorf("%s: %+v, want %v", m, l.decisions, want)
			}
		}
	}
	check(map[Metric]float64{MetricReward: 0.2 + 0.2 + 0.1, MetricTTFT: 500, MetricITL: 50, MetricE2E: 0.001})
	// What it waited before it was placed does not count.
	row.TTFTMS, row.TotalTimeMS, row.Attempts[0].PlacedMS = new(nvext.Float(2500)), new(nvext.Float(7000)), new(nvext.Float(2000))
	check(map[Metric]float64{MetricReward: 0.2 + 0.2 + 0.1, MetricTTFT: 500, MetricITL: 50, MetricE2E: 5000})
	row.Attempts[0].PlacedMS = new(nvext.Float(2600))
	check(map[Metric]float64{MetricReward: 0.2 + 0.4 + 0.1, MetricTTFT: 0.001})
}

// TestRead writes rows down and reads them back, in all the ways in which they may come.
func TestRead(t *testing.T) {
	w := newWorld(2, 0.6)
	want := NewLog(Options{})
	var text []byte
	for range 3 {
		row := w.row()
		row.Text, row.BlockSize, row.BlockHashes = "prompt", 16, trace.Hashes{1, 2}
		want.Add(row)
		var err error
		if text, err = row.AppendJSON(text); err != nil {
			t.Fatal(err)
		}
	}
	var gz, zst bytes.Buffer
	z := gzip.NewWriter(&gz)
	_, _ = z.Write(text)
	z.Close()
	zs, _ := zstd.NewWriter(&zst)
	_, _ = zs.Write(text)
	zs.Close()
	cut := text[:len(text)-9]
	for _, test := range []struct {
		name, text string
		rows       int
		skipped    Skipped
	}{
		{"plain", string(text), 3, Skipped{}},
		{"with empty lines", "\ufeff\n" + strings.ReplaceAll(string(text), "\n", "\r\n\n"), 3, Skipped{}},
		{"no end of the last line", strings.TrimSpace(string(text)), 3, Skipped{}},
		{"gzip", gz.String(), 3, Skipped{}},
		{"zstd", zst.String(), 3, Skipped{}},
		{"cut off", string(cut), 2, Skipped{CutOff: 1}},
		{"cut off before another", string(cut) + string(text), 5, Skipped{CutOff: 1}},
		{"gzip cut off", gz.String()[:gz.Len()-gz.Len()/3], -1, Skipped{CutOff: 1}},
		{"too long", strings.Repeat("x", trace.MaxLine+1) + "\n" + string(text), 3, Skipped{TooLong: 1}},
	} {
		l := NewLog(Options{})
		if err := l.Read(strings.NewReader(test.text)); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.skipped, l.Skipped()); diff != "" || test.rows >= 0 && l.Len() != test.rows {
			t.Errorf("%s: %d rows, want %d; left out (-want +got):\n%s", test.name, l.Len(), test.rows, diff)
		}
		if test.rows == 3 {
			if diff := cmp.Diff(want.decisions, l.decisions, cmp.AllowUnexported(decision{}), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", test.name, diff)
			}
		}
	}
	for name, text := range map[string]string{
		"line 1: schema: expected stator.request.trace.v1, got \"\": only what stator serve records holds decisions": `{"timestamp": 0, "hash_ids": [0]}` + "\n",
		"line 2: invalid character 'x' looking for beginning of value":                                               "\nx\n",
		"line 4: invalid character 'x' looking for beginning of value":                                               string(text) + "x",
	} {
		var line *trace.LineError
		if err := NewLog(Options{}).Read(strings.NewReader(text)); !errors.As(err, &line) || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

func FuzzRead(f *testing.F) {
	// Short, since the fuzzer spends its time on making what it finds shorter.
	for _, routing := range []string{
		`"mode":"kv","reason":"cost","prompt_tokens":9,"block_size":4,"cost":{"prefill_load_scale":1}`,
		`"mode":"kv","reason":"thompson","policy":"thompson"`,
		`"mode":"power-of-two"`,
	} {
		f.Add([]byte(`{"schema":"` + trace.Schema + `","ttft_ms":9,"output_tokens":1,"outcome":"completed","attempts":[{"routing":{` + routing +
			`,"considered":2,"chosen":{"worker_id":1},"candidates":[{"worker_id":1,"state":"eligible","propensity":1},{"state":"eligible"}]}}]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l := NewLog(Options{UnknownCacheIsZero: true})
		if l.Read(bytes.NewReader(text)) != nil || l.Len() == 0 {
			return
		}
		all := l.Policies()
		if len(all) == 0 || all[0].String() != "logged" {
			t.Fatalf("policies %v: expected that what was recorded can be evaluated", all)
		}
		r, err := l.Evaluate(all, Config{Resamples: 3})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Policies[0]; math.IsNaN(float64(got.Value.Value)) || !(got.Support > 0.999) {
			t.Errorf("%+v", got)
		}
	})
}
