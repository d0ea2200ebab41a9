package promtext

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const text = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a/b"} 3.0
vllm:num_requests_running{model_name="say \"hi\", {you}\\",engine="1",} 4 1700000000000
vllm:cache_config_info{block_size="16",num_gpu_blocks="None",enable_prefix_caching="True"} 1.0
process_start_time_seconds 1.70000000051e+09
up NaN
down -Inf # {trace_id="x"} 1
broken{engine="0" 1
broken{engine=0} 1
broken
broken{} x
empty{} 2
`

func TestSamples(t *testing.T) {
	all := []Sample{
		{"vllm:num_requests_running", map[string]string{"engine": "0", "model_name": "a/b"}, 3},
		{"vllm:num_requests_running", map[string]string{"engine": "1", "model_name": `say "hi", {you}\`}, 4},
		{"vllm:cache_config_info", map[string]string{"block_size": "16", "num_gpu_blocks": "None", "enable_prefix_caching": "True"}, 1},
		{"process_start_time_seconds", nil, 1700000000.51},
		{"up", nil, math.NaN()},
		{"down", nil, math.Inf(-1)},
		{"empty", map[string]string{}, 2},
	}
	if diff := cmp.Diff(all, slices.Collect(Samples([]byte(text), nil)), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	names := map[string]bool{"up": true, "vllm:num_requests_running": true}
	want := []Sample{all[0], all[1], all[4]}
	if diff := cmp.Diff(want, slices.Collect(Samples([]byte(text), names)), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("some (-want +got):\n%s", diff)
	}
	for s := range Samples([]byte(text), nil) {
		if s.Value != 3 {
			t.Errorf("went on to %v", s)
		}
		break
	}
}

func FuzzSamples(f *testing.F) {
	f.Add([]byte(text))
	f.Add([]byte("a{b=\"\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for s := range Samples(b, nil) {
			if s.Name == "" {
				t.Errorf("a sample without a name: %+v", s)
			}
		}
	})
}
