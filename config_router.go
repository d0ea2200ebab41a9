package stator

import (
	"maps"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/router"
)

// RouterConfig says how a rank is chosen and when one is left alone. The three
// thresholds say when a rank counts as overloaded; one that is not set is not
// checked, and a request is refused only when every rank is overloaded.
type RouterConfig struct {
	// Mode is kv, round-robin, random, power-of-two, least-loaded or direct. With kv
	// a request goes where the least is left to compute, because of what is in the
	// caches and of what runs already; Cost and KV are about that mode.
	// Default kv.
	Mode string `koanf:"mode"`
	// Policy is who chooses in mode kv: cost, or thompson, which learns from what became of
	// earlier requests. Default cost.
	Policy string `koanf:"policy"`
	// Thompson is the policy of that name.
	Thompson ThompsonConfig `koanf:"thompson"`
	// Seed makes random choices repeatable. 0, the default, is a random seed.
	Seed uint64 `koanf:"seed"`
	// Inhibit is how long a worker is left alone after a failure, unless a probe
	// succeeds earlier. Default 5s.
	Inhibit time.Duration `koanf:"inhibit"`
	// ProbeInterval is the time between health probes of a worker that is well.
	// Default 5s.
	ProbeInterval time.Duration `koanf:"probe_interval"`
	// LoadInterval is the time between questions about the load of an engine that
	// tells. Default 1s.
	LoadInterval time.Duration `koanf:"load_interval"`
	// CanaryInterval is after how long without an answer an engine is asked to compute
	// one token, to see whether it still can; 0 for never. An engine whose requests
	// keep failing has to in any case. Default 0.
	CanaryInterval time.Duration `koanf:"canary_interval"`
	// ActiveDecodeBlocksThreshold is a share of the rank's KV blocks, 0 to 1.
	// Default not set.
	ActiveDecodeBlocksThreshold *float64 `koanf:"active_decode_blocks_threshold"`
	// ActivePrefillTokensThreshold is a number of prompt tokens that wait for
	// their first output token. Default not set.
	ActivePrefillTokensThreshold *uint64 `koanf:"active_prefill_tokens_threshold"`
	// ActivePrefillTokensThresholdFrac is the same as a multiple of the rank's
	// max_num_batched_tokens. Default not set.
	ActivePrefillTokensThresholdFrac *float64 `koanf:"active_prefill_tokens_threshold_frac"`
	// OverloadStatus is the HTTP status when every rank is overloaded: 503, 429
	// or 529. Default 503.
	OverloadStatus int `koanf:"overload_status"`
	// Cost weighs what speaks for a rank and against it.
	Cost CostConfig `koanf:"cost"`
	// KV says what is known about caches and load.
	KV KVConfig `koanf:"kv"`
	// Queue holds requests back while all ranks are busy. Off by default.
	Queue QueueConfig `koanf:"queue"`
	// Decisions is how many of the latest decisions /debug/decisions shows, up to
	// 4096; 0 keeps none. Default 256.
	Decisions int `koanf:"decisions"`
	// Lease is how long what another router has booked here counts without a sign of
	// life. Default 5m.
	Lease time.Duration `koanf:"lease"`
}

// CostConfig weighs the parts of a rank's cost, which is counted in KV blocks: those
// of prompts to be computed there, less credit for what is cached, and those that
// running requests hold. The rank with the lowest cost gets the request.
type CostConfig struct {
	// OverlapScoreCredit is what a cached block on the rank's device takes off, in
	// blocks: 0 to place by load alone, above 1 to favour caches. Default 1.
	OverlapScoreCredit float64 `koanf:"overlap_score_credit"`
	// OverlapScoreCreditDecay shrinks that credit where more prompts wait than on the
	// rank with the fewest: with 1, to a half where they are longer by as much as
	// the request. Default 0.
	OverlapScoreCreditDecay float64 `koanf:"overlap_score_credit_decay"`
	// PrefillLoadScale is what a block to be computed counts against one that is held,
	// at least 0. Default 1.
	PrefillLoadScale float64 `koanf:"prefill_load_scale"`
	// DecodeActiveRequestWeight is what each running request counts beside its blocks,
	// in blocks and at least 0. With 0, as in Dynamo, requests that share all their
	// blocks cost nothing once one of them runs, and a popular prompt stays where it
	// was first. Default 16.
	DecodeActiveRequestWeight float64 `koanf:"decode_active_request_weight"`
	// HostCacheHitWeight is what a block in the memory of the engine's host is worth,
	// 0 to 1. Default 0.75.
	HostCacheHitWeight float64 `koanf:"host_cache_hit_weight"`
	// DiskCacheHitWeight is what a block on a disk is worth, 0 to 1. Default 0.25.
	DiskCacheHitWeight float64 `koanf:"disk_cache_hit_weight"`
	// SharedCacheMultiplier is what a block in a cache that engines share is worth, 0
	// to 1. Default 0.
	SharedCacheMultiplier float64 `koanf:"shared_cache_multiplier"`
	// Temperature lets dearer ranks have a request now and then, the higher the
	// likelier; 0 is always the cheapest. Default 0.
	Temperature float64 `koanf:"temperature"`
	// TemperatureScale is what Temperature is measured in: range for the difference
	// between the dearest and the cheapest rank of the decision, blocks for cost as
	// it is. Default range.
	TemperatureScale string `koanf:"temperature_scale"`
}

// KVConfig says what is known about caches and load, and how.
type KVConfig struct {
	// Events follows the KV events of engines. False, and for engines that send none,
	// what was placed on a rank is taken to be in its cache, for TTL and up to
	// MaxBlocks. Default true.
	Events bool `koanf:"events"`
	// TTL is how long a placed prompt is taken to be cached; 0 does not bound it.
	// Default 2m.
	TTL time.Duration `koanf:"ttl"`
	// MaxBlocks is how many placed blocks of a model are remembered, over all ranks,
	// at least 1. Default 1048576.
	MaxBlocks int `koanf:"max_blocks"`
	// PruneRatio is the share of MaxBlocks that is left, the latest ones, when there
	// were more: above 0 and up to 1. Default 0.8.
	PruneRatio float64 `koanf:"prune_target_ratio"`
	// AssumeReuse takes it that requests on a rank with the same prefix hold its
	// blocks together, not each their own. Default true.
	AssumeReuse bool `koanf:"assume_reuse"`
	// TrackActiveBlocks counts the blocks that running requests hold. Default true.
	TrackActiveBlocks bool `koanf:"track_active_blocks"`
	// TrackOutputBlocks counts those of answers, too, while they grow. It needs
	// TrackActiveBlocks. Default false.
	TrackOutputBlocks bool `koanf:"track_output_blocks"`
	// TrackPrefillTokens counts the prompt tokens that have yet to be computed.
	// Default true.
	TrackPrefillTokens bool `koanf:"track_prefill_tokens"`
	// PredictFromInflight takes the prompts of running requests to be cached where
	// they run, before an event says so. Default true.
	PredictFromInflight bool `koanf:"predict_from_inflight"`
	// SlowStart is for how long a worker that has just come is chosen less, and less
	// so with time. 0, the default, treats it like the others.
	SlowStart time.Duration `koanf:"slow_start"`
	// Trust shrinks the credit of workers that find less in their caches than was
	// predicted, until predictions come true again. Default true.
	Trust bool `koanf:"trust"`
	// TextRouting places prompts whose tokens are not known by hashes of their text,
	// so that equal beginnings come together. Default true.
	TextRouting bool `koanf:"text_routing"`
}

// QueueConfig says when requests wait here instead of on a rank, and in which order
// they go. Without classes there is one, named default, of Threshold and Policy.
type QueueConfig struct {
	// Threshold has requests wait while each rank they could go to has more prompt
	// tokens to compute than that many times its max_num_batched_tokens, at least 0.
	// Default not set, which is never.
	Threshold *float64 `koanf:"threshold"`
	// Policy is the order: fcfs for the first that came, lcfs for the last, wspt for
	// the least to compute; all with priority. Default fcfs.
	Policy string `koanf:"policy"`
	// MaxWait is how long a request waits at most before it is refused; 0 is no
	// limit. Default 1m.
	MaxWait time.Duration `koanf:"max_wait"`
	// MaxHeadStart bounds how much earlier a request can seem to have come because of
	// its priority; 0 gives priorities no effect. Default 1m.
	MaxHeadStart time.Duration `koanf:"max_head_start"`
	// RefreshAfter is how long a request waits before its cached prefix is looked up
	// once more when it goes; 0 is never. Default 10s.
	RefreshAfter time.Duration `koanf:"refresh_after"`
	// DefaultFamily is the policy family of requests that name none, or one that does
	// not exist. Required with Classes that have families; where none has, it is the
	// name of a class, and may be left out if there is one alone, or one named default.
	DefaultFamily string `koanf:"default_policy_family"`
	// Buckets divide the requests of a family by how many tokens of their prompts are
	// in no cache. None by default.
	Buckets []BucketConfig `koanf:"uncached_isl_buckets"`
	// Classes are the classes that requests wait in, and that take turns. None by
	// default.
	Classes []ClassConfig `koanf:"policy_classes"`
}

// BucketConfig is a range of uncached prompt lengths, up to where the next begins.
type BucketConfig struct {
	// MinTokens is where it begins: 0 for the first, and more for each that follows.
	// Required.
	MinTokens int `koanf:"min_tokens"`
	// Bucket is its name. Required and unique.
	Bucket string `koanf:"bucket"`
}

// ClassConfig is a class of waiting requests. A request belongs to the class of its
// family and bucket, or to one without either that it names. A family has one class
// for each bucket. Thresholds say when requests of the class wait; with neither they
// never do.
type ClassConfig struct {
	// Name tells classes apart in requests, metrics and messages. Required and
	// unique.
	Name string `koanf:"name"`
	// PolicyFamily is the family that requests name. Default none, for a class that is
	// named itself.
	PolicyFamily string `koanf:"policy_family"`
	// CacheBucket is one of QueueConfig.Buckets. Required with PolicyFamily, and only
	// then.
	CacheBucket string `koanf:"cache_bucket"`
	// QueuePolicy is the order, as QueueConfig.Policy. Default empty, which is the one
	// there.
	QueuePolicy string `koanf:"queue_policy"`
	// Quantum is how many uncached prompt tokens the class may send on in its turn, 1
	// to 2^30: its share against other classes. Required.
	Quantum int `koanf:"quantum"`
	// PrefillBusyThreshold is the number of prompt tokens to compute above which a
	// rank is busy. Default not set.
	PrefillBusyThreshold *int `koanf:"prefill_busy_threshold"`
	// PrefillBusyThresholdFrac is the same as a multiple of the rank's
	// max_num_batched_tokens. Default not set.
	PrefillBusyThresholdFrac *float64 `koanf:"prefill_busy_threshold_frac"`
	// RequestQueueLimitPerWorker is how many requests wait, for each worker there is,
	// before further ones are refused. Default not set, which is no limit.
	RequestQueueLimitPerWorker *int `koanf:"request_queue_limit_per_worker"`
	// RawISLTokenQueueLimitPerWorker is the same for the tokens of their prompts.
	// Default not set.
	RawISLTokenQueueLimitPerWorker *int `koanf:"raw_isl_token_queue_limit_per_worker"`
	// CachedTokenQueueLimitPerWorker is the same for those of them that are cached.
	// Default not set.
	CachedTokenQueueLimitPerWorker *int `koanf:"cached_token_queue_limit_per_worker"`
}

func defaultRouter() RouterConfig {
	return RouterConfig{
		Mode:           string(router.Modes[0]),
		Policy:         "cost",
		Thompson:       defaultThompson(),
		Inhibit:        5 * time.Second,
		ProbeInterval:  5 * time.Second,
		LoadInterval:   time.Second,
		OverloadStatus: 503,
		Cost: CostConfig{
			OverlapScoreCredit: 1,
			PrefillLoadScale:   1,
			HostCacheHitWeight: 0.75,
			DiskCacheHitWeight: 0.25,
			TemperatureScale:   "range",

			DecodeActiveRequestWeight: 16,
		},
		KV: KVConfig{
			Events:              true,
			TTL:                 2 * time.Minute,
			MaxBlocks:           1 << 20,
			PruneRatio:          0.8,
			AssumeReuse:         true,
			TrackActiveBlocks:   true,
			TrackPrefillTokens:  true,
			PredictFromInflight: true,
			Trust:               true,
			TextRouting:         true,
		},
		Queue: QueueConfig{
			Policy:       "fcfs",
			MaxWait:      time.Minute,
			MaxHeadStart: time.Minute,
			RefreshAfter: 10 * time.Second,
		},
		Decisions: 256,
		Lease:     5 * time.Minute,
	}
}

// topologyTaint returns the taint of an engine that stands at value in domain.
func topologyTaint(domain, value string) string {
	return "dynamo.topology/" + domain + "=" + value
}

// allTaints returns the taints of the engine with those of its topology, in the order
// of their domains.
func (e *EngineConfig) allTaints() []string {
	out := slices.Clone(e.Taints)
	for _, domain := range slices.Sorted(maps.Keys(e.Topology)) {
		out = append(out, topologyTaint(domain, e.Topology[domain]))
	}
	return out
}
