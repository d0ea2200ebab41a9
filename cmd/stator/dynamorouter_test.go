package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
)

// routerFlags reads a command line of the router's flags.
func routerFlags(t *testing.T, args ...string) (*settings, error) {
	t.Helper()
	cmd := &cobra.Command{}
	s := &settings{cmd: cmd}
	s.addRouter()
	alias(cmd.Flags(), dynamoAliases)
	return s, cmd.ParseFlags(args)
}

func TestRouterFlags(t *testing.T) {
	for _, tt := range []struct {
		args   string
		change func(*stator.RouterConfig)
	}{
		{"", func(*stator.RouterConfig) {}},
		{"--router-policy thompson --thompson-variant shadow", func(r *stator.RouterConfig) { r.Policy, r.Thompson.Variant = "thompson", "shadow" }},
		{"--router-mode random", func(r *stator.RouterConfig) { r.Mode = "random" }},
		{"--router-kv-overlap-score-weight 2.5", func(r *stator.RouterConfig) { r.Cost.PrefillLoadScale = 2.5 }},
		{"--kv-overlap-score-weight=0", func(r *stator.RouterConfig) { r.Cost.PrefillLoadScale, r.Cost.OverlapScoreCredit = 0, 0 }},
		{"--router-kv-overlap-score-credit 0.5 --kv-overlap-score-weight 0 --router-prefill-load-scale 3", func(r *stator.RouterConfig) {
			r.Cost.PrefillLoadScale, r.Cost.OverlapScoreCredit = 3, 0.5
		}},
		{"--router-kv-overlap-score-credit-decay 1 --router-decode-active-request-weight 32 --router-host-cache-hit-weight 1 " +
			"--router-disk-cache-hit-weight 0 --shared-cache-multiplier 0.5 --router-temperature 0.7", func(r *stator.RouterConfig) {
			r.Cost = stator.CostConfig{OverlapScoreCredit: 1, OverlapScoreCreditDecay: 1, PrefillLoadScale: 1, DecodeActiveRequestWeight: 32,
				HostCacheHitWeight: 1, DiskCacheHitWeight: 0, SharedCacheMultiplier: 0.5, Temperature: 0.7, TemperatureScale: "range"}
		}},
		{"--router-ttl-secs 90.5 --router-max-tree-size 1000 --router-prune-target-ratio 0.5", func(r *stator.RouterConfig) {
			r.KV.TTL, r.KV.MaxBlocks, r.KV.PruneRatio = 90*time.Second+500*time.Millisecond, 1000, 0.5
		}},
		{"--no-router-kv-events --no-assume-kv-reuse --router-track-output-blocks --no-router-track-prefill-tokens", func(r *stator.RouterConfig) {
			r.KV.Events, r.KV.AssumeReuse, r.KV.TrackOutputBlocks, r.KV.TrackPrefillTokens = false, false, true, false
		}},
		{"--no-kv-events --kv-events --router-track-active-blocks --no-track-active-blocks", func(r *stator.RouterConfig) {
			r.KV.TrackActiveBlocks = false // the last of the two counts
		}},
		{"--router-kv-events=false --no-router-assume-kv-reuse=false", func(r *stator.RouterConfig) { r.KV.Events = false }},
		{"--router-queue-threshold 4 --router-queue-policy wspt", func(r *stator.RouterConfig) {
			r.Queue.Threshold, r.Queue.Policy = new(4.0), "wspt"
		}},
		{"--router-queue-threshold None", func(*stator.RouterConfig) {}},
		{"--load-aware --router-kv-events", func(r *stator.RouterConfig) {
			r.Mode, r.Cost.OverlapScoreCredit, r.KV.AssumeReuse = "kv", 0, false
		}},
		{"--load-aware=false", func(*stator.RouterConfig) {}},
		{"--no-router-durable-kv-events --router-replica-sync=false --router-reset-states --router-prefill-load-model none --shared-cache-type=none",
			func(*stator.RouterConfig) {}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			s, err := routerFlags(t, strings.Fields(tt.args)...)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.refusal(); err != nil {
				t.Fatal(err)
			}
			got, err := load(source{getenv: func(string) string { return "" }, flags: s.given()})
			if err != nil {
				t.Fatal(err)
			}
			want := stator.DefaultConfig().Router
			tt.change(&want)
			if d := cmp.Diff(want, got.Router); d != "" {
				t.Errorf("router (-want +got):\n%s", d)
			}
		})
	}
}

func TestRouterFlagsNameTheirOrigin(t *testing.T) {
	s, err := routerFlags(t, "--router-track-output-blocks", "--no-track-active-blocks", "--kv-overlap-score-weight", "-1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = load(source{getenv: func(string) string { return "" }, flags: s.given()})
	want := "configuration has 2 problems:\n" +
		"  --router-kv-overlap-score-weight: router.cost.prefill_load_scale: expected a number of at least 0, got -1\n" +
		"  --router-track-output-blocks: router.kv.track_output_blocks: expected with router.kv.track_active_blocks only, which is false"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestRouterFlagsRefused(t *testing.T) {
	for _, name := range []string{
		"router-durable-kv-events", "router-replica-sync", "router-snapshot-threshold=5", "router-event-threads=4",
		"router-prefill-load-model=aic", "router-predicted-ttl-secs=5", "shared-cache-type=hicache", "use-remote-indexer", "serve-indexer",
	} {
		s, err := routerFlags(t, "--"+name)
		if err != nil {
			t.Errorf("--%s: %v", name, err)
			continue
		}
		name, _, _ = strings.Cut(name, "=")
		if err := s.refusal(); err == nil || !strings.HasPrefix(err.Error(), "--"+name+" is not supported: ") {
			t.Errorf("--%s: %v", name, err)
		}
	}
	for _, arg := range []string{
		"--router-replica-sync=maybe", "--no-router-kv-events=1", "--load-aware=1", "--router-ttl-secs=-1", "--router-ttl-secs=NaN",
		"--router-ttl-secs=1e10", "--kv-overlap-score-weight=inf", "--router-max-tree-size=1e6", "--router-policy-config=", "--router-kv-tree",
	} {
		if _, err := routerFlags(t, arg); err == nil {
			t.Errorf("%s: no error", arg)
		}
	}
}

func TestDynamoRouterVariables(t *testing.T) {
	set, ignored, err := dynamoEnvironment([]string{
		"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT=0",
		"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT=0.5",
		"DYN_ROUTER_TEMPERATURE=0.25",
		"DYN_ROUTER_USE_KV_EVENTS=False",
		"DYN_ROUTER_ASSUME_KV_REUSE=1",
		"DYN_ROUTER_TRACK_OUTPUT_BLOCKS=on",
		"DYN_ROUTER_TTL_SECS=120.0",
		"DYN_ROUTER_QUEUE_THRESHOLD=none",
		"DYN_ROUTER_QUEUE_POLICY=wspt",
		"DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS=0",
		"DYN_ROUTER_REPLICA_SYNC=true",
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"DYN_ROUTER_REPLICA_SYNC"}, ignored); d != "" {
		t.Errorf("ignored (-want +got):\n%s", d)
	}
	got, err := load(source{getenv: func(string) string { return "" }, dynamo: set})
	if err != nil {
		t.Fatal(err)
	}
	want := stator.DefaultConfig().Router
	want.Cost.PrefillLoadScale, want.Cost.OverlapScoreCredit, want.Cost.Temperature = 0, 0.5, 0.25
	want.KV.Events, want.KV.TrackOutputBlocks = false, true
	want.Queue.Policy, want.Queue.RefreshAfter = "wspt", 0
	if d := cmp.Diff(want, got.Router); d != "" {
		t.Errorf("router (-want +got):\n%s", d)
	}
}

func TestPolicyFile(t *testing.T) {
	dir := t.TempDir()
	config, policy := filepath.Join(dir, "stator.yaml"), filepath.Join(dir, "policy.yaml")
	for name, text := range map[string]string{
		config: `
router:
  queue:
    policy: lcfs
    default_policy_family: old
    uncached_isl_buckets: [{min_tokens: 0, bucket: old}, {min_tokens: 9, bucket: other}]
    policy_classes: [{name: old, policy_family: old, cache_bucket: old, quantum: 1}]
`,
		policy: `
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - &a {name: chat, policy_family: chat, cache_bucket: all, queue_policy: wspt, quantum: 512, prefill_busy_threshold: 7}
  - {<<: *a, name: batch, policy_family: "", cache_bucket: "", prefill_busy_threshold_frac: 1.5, request_queue_limit_per_worker: 1,
     raw_isl_token_queue_limit_per_worker: 2, cached_token_queue_limit_per_worker: 3}
`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	getenv := func(string) string { return "" }
	s, err := routerFlags(t, "--router-policy-config", policy)
	if err != nil {
		t.Fatal(err)
	}
	want := stator.DefaultConfig().Router.Queue
	want.Policy, want.DefaultFamily = "lcfs", "chat"
	want.Buckets = []stator.BucketConfig{{MinTokens: 0, Bucket: "all"}}
	want.Classes = []stator.ClassConfig{
		{Name: "chat", PolicyFamily: "chat", CacheBucket: "all", QueuePolicy: "wspt", Quantum: 512, PrefillBusyThreshold: new(7)},
		{Name: "batch", QueuePolicy: "wspt", Quantum: 512, PrefillBusyThreshold: new(7), PrefillBusyThresholdFrac: new(1.5),
			RequestQueueLimitPerWorker: new(1), RawISLTokenQueueLimitPerWorker: new(2), CachedTokenQueueLimitPerWorker: new(3)},
	}
	env, _, err := dynamoEnvironment([]string{"DYN_ROUTER_POLICY_CONFIG=" + policy})
	if err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string]source{
		"flag":     {file: config, getenv: getenv, flags: s.given()},
		"variable": {file: config, getenv: getenv, dynamo: env},
	} {
		got, err := load(src)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got.Router.Queue); d != "" {
			t.Errorf("%s: queue (-want +got):\n%s", name, d)
		}
	}

	// What the file does not say is not left from the configuration either.
	if err := os.WriteFile(policy, []byte("# nothing\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := load(source{file: config, getenv: getenv, flags: s.given()})
	if err != nil {
		t.Fatal(err)
	}
	if q := got.Router.Queue; q.DefaultFamily != "" || len(q.Buckets)+len(q.Classes) > 0 {
		t.Errorf("an empty file leaves %+v", q)
	}
}

// TestPolicyKeysAreSettings keeps the file's keys those of router.queue.
func TestPolicyKeysAreSettings(t *testing.T) {
	for f := range fields(reflect.TypeFor[policyKeys]()) {
		if key := "router.queue." + f.Tag.Get("koanf"); settingType(key) != f.Type {
			t.Errorf("%s is a %s, in the file a %s", key, settingType(key), f.Type)
		}
	}
}
