package stator

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// twoClasses returns a queue with a family of two buckets and a class that is named.
func twoClasses() QueueConfig {
	q := DefaultConfig().Router.Queue
	q.DefaultFamily = "chat"
	q.Buckets = []BucketConfig{{0, "warm"}, {4096, "cold"}}
	q.Classes = []ClassConfig{
		{Name: "chat-warm", PolicyFamily: "chat", CacheBucket: "warm", Quantum: 4096, PrefillBusyThresholdFrac: new(2.0)},
		{Name: "chat-cold", PolicyFamily: "chat", CacheBucket: "cold", QueuePolicy: "wspt", Quantum: 1, PrefillBusyThreshold: new(0)},
		{Name: "batch", QueuePolicy: "lcfs", Quantum: 1 << 30, RequestQueueLimitPerWorker: new(0)},
	}
	return q
}

func TestValidateRouter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*RouterConfig)
		want   []Problem
	}{
		{"cost at its limits", func(r *RouterConfig) {
			r.Cost = CostConfig{OverlapScoreCredit: 9, OverlapScoreCreditDecay: 9, PrefillLoadScale: 9, DecodeActiveRequestWeight: 9,
				HostCacheHitWeight: 1, DiskCacheHitWeight: 1, SharedCacheMultiplier: 1, Temperature: 9, TemperatureScale: "blocks"}
		}, nil},
		{"cost of nothing", func(r *RouterConfig) { r.Cost = CostConfig{TemperatureScale: "range"} }, nil},
		{"cost below", func(r *RouterConfig) { r.Cost = CostConfig{-1, -1, -1, -1, -1, -1, -1, -1, ""} }, []Problem{
			{"router.cost.overlap_score_credit", "expected a number of at least 0, got -1"},
			{"router.cost.overlap_score_credit_decay", "expected a number of at least 0, got -1"},
			{"router.cost.prefill_load_scale", "expected a number of at least 0, got -1"},
			{"router.cost.decode_active_request_weight", "expected a number of at least 0, got -1"},
			{"router.cost.host_cache_hit_weight", "expected a number from 0 to 1, got -1"},
			{"router.cost.disk_cache_hit_weight", "expected a number from 0 to 1, got -1"},
			{"router.cost.shared_cache_multiplier", "expected a number from 0 to 1, got -1"},
			{"router.cost.temperature", "expected a number of at least 0, got -1"},
			{"router.cost.temperature_scale", `expected range or blocks, got ""`},
		}},
		{"cost that is no number", func(r *RouterConfig) {
			r.Cost.OverlapScoreCredit, r.Cost.PrefillLoadScale, r.Cost.Temperature = math.NaN(), math.Inf(1), math.Inf(1)
			r.Cost.HostCacheHitWeight, r.Cost.DiskCacheHitWeight = 1.01, math.NaN()
		}, []Problem{
			{"router.cost.overlap_score_credit", "expected a number of at least 0, got NaN"},
			{"router.cost.prefill_load_scale", "expected a number of at least 0, got +Inf"},
			{"router.cost.host_cache_hit_weight", "expected a number from 0 to 1, got 1.01"},
			{"router.cost.disk_cache_hit_weight", "expected a number from 0 to 1, got NaN"},
			{"router.cost.temperature", "expected a number of at least 0, got +Inf"},
		}},

		{"kv at its limits", func(r *RouterConfig) {
			r.KV = KVConfig{MaxBlocks: 1, PruneRatio: 1, TrackActiveBlocks: true, TrackOutputBlocks: true}
		}, nil},
		{"kv beyond", func(r *RouterConfig) { r.KV = KVConfig{TTL: -1, TrackOutputBlocks: true, SlowStart: -1} }, []Problem{
			{"router.kv.ttl", "expected at least 0s, got -1ns"},
			{"router.kv.max_blocks", "expected at least 1, got 0"},
			{"router.kv.prune_target_ratio", "expected a number above 0 and up to 1, got 0"},
			{"router.kv.track_output_blocks", "expected with router.kv.track_active_blocks only, which is false"},
			{"router.kv.slow_start", "expected at least 0s, got -1ns"},
		}},

		{"decisions and leases", func(r *RouterConfig) { r.Decisions, r.Lease = 4096, time.Second }, nil},
		{"no decisions", func(r *RouterConfig) { r.Decisions = 0 }, nil},
		{"too many decisions", func(r *RouterConfig) { r.Decisions, r.Lease = 4097, 0 }, []Problem{
			{"router.decisions", "expected a number from 0 to 4096, got 4097"},
			{"router.lease", "expected more than 0, got 0s"},
		}},

		{"queue at its limits", func(r *RouterConfig) { r.Queue = QueueConfig{Threshold: new(0.0), Policy: "lcfs"} }, nil},
		{"queue beyond", func(r *RouterConfig) {
			r.Queue = QueueConfig{Threshold: new(-0.5), Policy: "lifo", MaxWait: -1, MaxHeadStart: -1, RefreshAfter: -1}
		}, []Problem{
			{"router.queue.threshold", "expected a number of at least 0, got -0.5"},
			{"router.queue.policy", `expected fcfs, lcfs or wspt, got "lifo"`},
			{"router.queue.max_wait", "expected at least 0s, got -1ns"},
			{"router.queue.max_head_start", "expected at least 0s, got -1ns"},
			{"router.queue.refresh_after", "expected at least 0s, got -1ns"},
		}},
		{"classes", func(r *RouterConfig) { r.Queue = twoClasses() }, nil},
		{"classes by name alone", func(r *RouterConfig) {
			r.Queue = QueueConfig{Policy: "fcfs", Classes: []ClassConfig{{Name: "default", Quantum: 2}, {Name: "batch", Quantum: 1}}}
		}, nil},
		{"each setting of a class", func(r *RouterConfig) {
			r.Queue = twoClasses()
			r.Queue.Classes[1] = ClassConfig{PolicyFamily: "chat", CacheBucket: "cold", QueuePolicy: "sjf", Quantum: 1<<30 + 1,
				PrefillBusyThreshold: new(-1), PrefillBusyThresholdFrac: new(math.NaN()),
				RequestQueueLimitPerWorker: new(-2), RawISLTokenQueueLimitPerWorker: new(-3), CachedTokenQueueLimitPerWorker: new(-4)}
		}, []Problem{
			{"router.queue.policy_classes[1].name", "expected a name to tell the class by"},
			{"router.queue.policy_classes[1].queue_policy", `expected fcfs, lcfs or wspt, got "sjf"`},
			{"router.queue.policy_classes[1].quantum", "expected a number from 1 to 1073741824, got 1073741825"},
			{"router.queue.policy_classes[1].prefill_busy_threshold", "expected at least 0, got -1"},
			{"router.queue.policy_classes[1].request_queue_limit_per_worker", "expected at least 0, got -2"},
			{"router.queue.policy_classes[1].raw_isl_token_queue_limit_per_worker", "expected at least 0, got -3"},
			{"router.queue.policy_classes[1].cached_token_queue_limit_per_worker", "expected at least 0, got -4"},
			{"router.queue.policy_classes[1].prefill_busy_threshold_frac", "expected a number of at least 0, got NaN"},
		}},
		{"classes that do not fit", func(r *RouterConfig) {
			r.Queue = twoClasses()
			r.Queue.DefaultFamily = "batch"
			r.Queue.Buckets = append(r.Queue.Buckets, BucketConfig{4096, "warm"})
			r.Queue.Classes[1].CacheBucket, r.Queue.Classes[2].CacheBucket = "hot%d", "cold"
			r.Queue.Classes = append(r.Queue.Classes, ClassConfig{Name: "chat-cold", PolicyFamily: "chat", Quantum: 1})
		}, []Problem{
			{"router.queue.uncached_isl_buckets[2].min_tokens", "expected more than 4096, where the bucket before begins, got 4096"},
			{"router.queue.uncached_isl_buckets[2].bucket", `expected a name of its own, but router.queue.uncached_isl_buckets[0] is called "warm" too`},
			{"router.queue.policy_classes[2].policy_family", `expected one, because cache_bucket is "cold"`},
			{"router.queue.policy_classes[3].name", `expected a name of its own, but router.queue.policy_classes[1] is called "chat-cold" too`},
			{"router.queue.policy_classes[3].cache_bucket", `expected one, because policy_family is "chat"`},
			{"router.queue.policy_classes[1].cache_bucket", `expected a bucket of router.queue.uncached_isl_buckets, got "hot%d"`},
		}},
		{"default family that is none", func(r *RouterConfig) {
			r.Queue = twoClasses()
			r.Queue.DefaultFamily = "batch"
		}, []Problem{{"router.queue.default_policy_family", `expected a family of router.queue.policy_classes, such as chat, got "batch"`}}},
		{"policy of classes without their own", func(r *RouterConfig) {
			r.Queue = twoClasses()
			r.Queue.Policy = "lifo"
		}, []Problem{{"router.queue.policy", `expected fcfs, lcfs or wspt, got "lifo"`}}},
		{"no classes", func(r *RouterConfig) {
			r.Queue = twoClasses()
			r.Queue.Classes = nil
		}, []Problem{
			{"router.queue.default_policy_family", "expected with router.queue.policy_classes only"},
			{"router.queue.uncached_isl_buckets", "expected with router.queue.policy_classes only"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkProblems(t, func(c *Config) { tt.change(&c.Router) }, tt.want)
		})
	}
}

func TestValidateTaints(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, tt := range []struct {
		name     string
		taints   []string
		topology map[string]string
		want     []Problem
	}{
		{"taints", []string{"a100", "größe=7 B", long}, map[string]string{"zone": "west", "rack.row": "7"}, nil},
		{"as many as can be", numbered(62), map[string]string{"a": "1", "b": "2"}, nil},
		{"more", numbered(63), map[string]string{"a": "1", "b": "2"},
			[]Problem{{"engines[0].taints", "expected at most 64 with those of the topology, got 65"}}},
		{"taints that are none", []string{"a", "", "a", "x\ny", "\xff", long + "x"}, nil, []Problem{
			{"engines[0].taints[1]", "expected a taint"},
			{"engines[0].taints[2]", `expected each taint once, got "a" again`},
			{"engines[0].taints[3]", `expected printable text, got "x\ny"`},
			{"engines[0].taints[4]", `expected printable text, got "\xff"`},
			{"engines[0].taints[5]", "expected a taint of at most 256 bytes, got 257"},
		}},
		{"topology that is none", []string{"dynamo.topology/zone=west"},
			map[string]string{"": "x", "a=b": "c", "rack": "", "row": "\t", "x\ny": "z", "zone": "west", long: "x"}, []Problem{
				{"engines[0].topology", `expected the name of a domain without =, got ""`},
				{"engines[0].topology", `expected the name of a domain without =, got "a=b"`},
				{"engines[0].topology.rack", "expected where the engine stands in the domain"},
				{"engines[0].topology.row", `expected printable text, got "dynamo.topology/row=\t"`},
				{"engines[0].topology", `expected printable text, got "x\ny"`},
				{"engines[0].topology." + long, "expected a taint of at most 256 bytes, got 274"},
				{"engines[0].topology.zone", `expected each taint once, got "dynamo.topology/zone=west" again`},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkProblems(t, func(c *Config) {
				c.Engines = []EngineConfig{{URL: "http://a", Taints: tt.taints, Topology: tt.topology}}
			}, tt.want)
		})
	}
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	return out
}

func TestAllTaints(t *testing.T) {
	e := EngineConfig{Taints: []string{"b", "a"}, Topology: map[string]string{"zone": "west", "rack": "7"}}
	want := []string{"b", "a", "dynamo.topology/rack=7", "dynamo.topology/zone=west"}
	if d := cmp.Diff(want, e.allTaints()); d != "" {
		t.Errorf("taints (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"b", "a"}, e.Taints); d != "" {
		t.Errorf("the engine's own (-want +got):\n%s", d)
	}
}
