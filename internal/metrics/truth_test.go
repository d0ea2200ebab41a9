package metrics

import "testing"

func TestTruth(t *testing.T) {
	tests := []struct {
		name                    string
		verdict                 Verdict
		predicted, actual       int
		wantP, wantA, wantAbove float64
	}{
		{"agreed", VerdictAgreed, 512, 512, 512, 512, 0},
		{"within a block", VerdictAgreed, 512, 500, 512, 500, 12},
		{"more than predicted", VerdictAgreed, 512, 528, 512, 528, 0},
		{"index stale", VerdictIndexStale, 512, 64, 512, 64, 448},
		{"traded for load", VerdictTradedForLoad, 32, 32, 32, 32, 0},
		{"no reuse", VerdictNoReuse, 0, 0, 0, 0, 0},
		{"unforeseen", VerdictUnforeseen, 0, 64, 0, 64, 0},
		{"unknown", VerdictUnknown, 512, 0, 0, 0, 0},
		{"tokens differ", VerdictTokensDiffer, 512, 96, 0, 0, 0},
		{"negative", VerdictAgreed, -1, -2, 0, 0, 0},
	}
	const labels = `{model="M",worker_id="9223372036854775813"}`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{})
			s.Truth("M", 1<<63+5).Record(tt.verdict, tt.predicted, tt.actual)
			want := map[string]float64{
				`stator_cache_predicted_tokens_total` + labels:     tt.wantP,
				`stator_cache_actual_tokens_total` + labels:        tt.wantA,
				`stator_cache_overpredicted_tokens_total` + labels: tt.wantAbove,
			}
			for _, v := range verdicts {
				n := 0.0
				if v == tt.verdict {
					n = 1
				}
				want[`stator_cache_verdicts_total{model="M",verdict="`+string(v)+`",worker_id="9223372036854775813"}`] = n
			}
			wantSamples(t, s, want)
		})
	}
}

func TestTruthIsKept(t *testing.T) {
	s := New(Options{})
	tr := s.Truth("M", 1)
	if s.Truth("M", 1) != tr {
		t.Error("a second call returned another Truth")
	}
	if s.Truth("N", 1) == tr || s.Truth("M", 2) == tr {
		t.Error("another model or worker has the same Truth")
	}
	if n := testing.AllocsPerRun(100, func() { tr.Record(VerdictIndexStale, 512, 64) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}
