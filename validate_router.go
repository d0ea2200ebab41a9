package stator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/router"
)

const (
	maxDecisions = 4096
	maxTaints    = 64
	maxTaintSize = 256
	maxQuantum   = 1 << 30
)

func (v *validator) router(r *RouterConfig) {
	if _, err := router.ParseMode(r.Mode); err != nil {
		modes := make([]string, len(router.Modes))
		for i, m := range router.Modes {
			modes[i] = string(m)
		}
		v.add("router.mode", "expected %s, got %q", orList(modes), r.Mode)
	}
	v.positive("router.inhibit", r.Inhibit)
	v.positive("router.probe_interval", r.ProbeInterval)
	if t := r.ActiveDecodeBlocksThreshold; t != nil {
		v.between("router.active_decode_blocks_threshold", *t, 0, 1)
	}
	if t := r.ActivePrefillTokensThresholdFrac; t != nil {
		v.nonNegative("router.active_prefill_tokens_threshold_frac", *t)
	}
	if s := r.OverloadStatus; s != 503 && s != 429 && s != 529 {
		v.add("router.overload_status", "expected 503, 429 or 529, got %d", s)
	}
	v.cost(&r.Cost)
	v.kv(&r.KV)
	v.queue(&r.Queue)
	v.intBetween("router.decisions", r.Decisions, 0, maxDecisions)
	v.positive("router.lease", r.Lease)
}

func (v *validator) cost(c *CostConfig) {
	v.nonNegative("router.cost.overlap_score_credit", c.OverlapScoreCredit)
	v.nonNegative("router.cost.overlap_score_credit_decay", c.OverlapScoreCreditDecay)
	v.nonNegative("router.cost.prefill_load_scale", c.PrefillLoadScale)
	v.nonNegative("router.cost.decode_active_request_weight", c.DecodeActiveRequestWeight)
	v.between("router.cost.host_cache_hit_weight", c.HostCacheHitWeight, 0, 1)
	v.between("router.cost.disk_cache_hit_weight", c.DiskCacheHitWeight, 0, 1)
	v.between("router.cost.shared_cache_multiplier", c.SharedCacheMultiplier, 0, 1)
	v.nonNegative("router.cost.temperature", c.Temperature)
	v.oneOf("router.cost.temperature_scale", c.TemperatureScale, "range", "blocks")
}

func (v *validator) kv(k *KVConfig) {
	v.atLeast("router.kv.ttl", k.TTL, 0)
	v.intAtLeast("router.kv.max_blocks", k.MaxBlocks, 1)
	if !(k.PruneRatio > 0 && k.PruneRatio <= 1) {
		v.add("router.kv.prune_target_ratio", "expected a number above 0 and up to 1, got %v", k.PruneRatio)
	}
	if k.TrackOutputBlocks && !k.TrackActiveBlocks {
		v.add("router.kv.track_output_blocks", "expected with router.kv.track_active_blocks only, which is false")
	}
	v.atLeast("router.kv.slow_start", k.SlowStart, 0)
}

func (v *validator) queue(q *QueueConfig) {
	if q.Threshold != nil {
		v.nonNegative("router.queue.threshold", *q.Threshold)
	}
	v.queuePolicy("router.queue.policy", q.Policy)
	v.atLeast("router.queue.max_wait", q.MaxWait, 0)
	v.atLeast("router.queue.max_head_start", q.MaxHeadStart, 0)
	v.atLeast("router.queue.refresh_after", q.RefreshAfter, 0)
	buckets := v.buckets(q.Buckets)
	families := v.classes(q, buckets)
	switch key := "router.queue.default_policy_family"; {
	case len(q.Classes) == 0:
		if q.DefaultFamily != "" {
			v.add(key, "expected with router.queue.policy_classes only")
		}
		if len(q.Buckets) > 0 {
			v.add("router.queue.uncached_isl_buckets", "expected with router.queue.policy_classes only")
		}
	case len(families) == 0:
		v.add("router.queue.policy_classes", "expected one with a policy_family, for requests that name no class")
	case families[q.DefaultFamily] == nil:
		names := slices.Sorted(maps.Keys(families))
		if q.DefaultFamily == "" {
			v.add(key, "expected a family of router.queue.policy_classes, such as %s", names[0])
		} else {
			v.add(key, "expected a family of router.queue.policy_classes, such as %s, got %q", names[0], q.DefaultFamily)
		}
	}
}

func (v *validator) queuePolicy(key, got string) { v.oneOf(key, got, "fcfs", "lcfs", "wspt") }

// buckets returns the names of all buckets, in their order.
func (v *validator) buckets(buckets []BucketConfig) []string {
	var names []string
	for i, b := range buckets {
		at := fmt.Sprintf("router.queue.uncached_isl_buckets[%d]", i)
		switch {
		case i == 0 && b.MinTokens != 0:
			v.add(at+".min_tokens", "expected 0, where the first bucket begins, got %d", b.MinTokens)
		case i > 0 && b.MinTokens <= buckets[i-1].MinTokens:
			v.add(at+".min_tokens", "expected more than %d, where the bucket before begins, got %d", buckets[i-1].MinTokens, b.MinTokens)
		}
		switch {
		case b.Bucket == "":
			v.add(at+".bucket", "expected a name to tell the bucket by")
		case slices.Contains(names, b.Bucket):
			v.add(at+".bucket", "expected a name of its own, got %q again", b.Bucket)
		default:
			names = append(names, b.Bucket)
		}
	}
	return names
}

// classes returns which class each family has for each bucket, by its index.
func (v *validator) classes(q *QueueConfig, buckets []string) map[string]map[string]int {
	families := make(map[string]map[string]int)
	named := make(map[string]int)
	garbled := make(map[string]bool) // families of which something is wrong already
	for i := range q.Classes {
		c, at := &q.Classes[i], fmt.Sprintf("router.queue.policy_classes[%d]", i)
		if other, taken := named[c.Name]; c.Name == "" {
			v.add(at+".name", "expected a name to tell the class by")
		} else if taken {
			v.add(at+".name", "expected a name of its own, but router.queue.policy_classes[%d] is called %q too", other, c.Name)
		} else {
			named[c.Name] = i
		}
		v.class(at, c)
		switch {
		case c.PolicyFamily == "" && c.CacheBucket == "":
			continue
		case c.PolicyFamily == "":
			v.add(at+".policy_family", "expected one, because cache_bucket is %q", c.CacheBucket)
			continue
		}
		of := families[c.PolicyFamily]
		if of == nil {
			of = make(map[string]int)
			families[c.PolicyFamily] = of
		}
		switch other, taken := of[c.CacheBucket]; {
		case c.CacheBucket == "":
			v.add(at+".cache_bucket", "expected one, because policy_family is %q", c.PolicyFamily)
			garbled[c.PolicyFamily] = true
		case !slices.Contains(buckets, c.CacheBucket):
			v.add(at+".cache_bucket", "expected a bucket of router.queue.uncached_isl_buckets, got %q", c.CacheBucket)
			garbled[c.PolicyFamily] = true
		case taken:
			v.add(at+".cache_bucket", "expected one class for each bucket of %s, but router.queue.policy_classes[%d] has %q too", c.PolicyFamily, other, c.CacheBucket)
		default:
			of[c.CacheBucket] = i
		}
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		if i, ok := named[family]; ok && q.Classes[i].PolicyFamily == "" {
			v.add(fmt.Sprintf("router.queue.policy_classes[%d].name", i), "expected another name than a family's, got %q", family)
		}
		if garbled[family] {
			continue
		}
		var missing []string
		for _, b := range buckets {
			if _, ok := families[family][b]; !ok {
				missing = append(missing, b)
			}
		}
		if missing != nil {
			v.add("router.queue.policy_classes", "expected a class of family %s for each bucket, found none for %s", family, strings.Join(missing, ", "))
		}
	}
	return families
}

// class checks what a class says about itself alone.
func (v *validator) class(at string, c *ClassConfig) {
	if c.QueuePolicy != "" {
		v.queuePolicy(at+".queue_policy", c.QueuePolicy)
	}
	v.intBetween(at+".quantum", c.Quantum, 1, maxQuantum)
	if t := c.PrefillBusyThresholdFrac; t != nil {
		v.nonNegative(at+".prefill_busy_threshold_frac", *t)
	}
	for _, n := range []struct {
		name  string
		value *int
	}{
		{"prefill_busy_threshold", c.PrefillBusyThreshold},
		{"request_queue_limit_per_worker", c.RequestQueueLimitPerWorker},
		{"raw_isl_token_queue_limit_per_worker", c.RawISLTokenQueueLimitPerWorker},
		{"cached_token_queue_limit_per_worker", c.CachedTokenQueueLimitPerWorker},
	} {
		if n.value != nil {
			v.intAtLeast(at+"."+n.name, *n.value, 0)
		}
	}
}

// taints checks the taints and the topology of an engine.
func (v *validator) taints(at string, e *EngineConfig) {
	if n := len(e.Taints) + len(e.Topology); n > maxTaints {
		v.add(at+".taints", "expected at most %d with those of the topology, got %d", maxTaints, n)
		return
	}
	seen := make(map[string]bool)
	check := func(key, taint string) {
		switch {
		case len(taint) > maxTaintSize:
			v.add(key, "expected a taint of at most %d bytes, got %d", maxTaintSize, len(taint))
		case !printable(taint):
			v.add(key, "expected printable text, got %q", taint)
		case seen[taint]:
			v.add(key, "expected each taint once, got %q again", taint)
		}
		seen[taint] = true
	}
	for i, taint := range e.Taints {
		key := fmt.Sprintf("%s.taints[%d]", at, i)
		if taint == "" {
			v.add(key, "expected a taint")
			continue
		}
		check(key, taint)
	}
	for _, domain := range slices.Sorted(maps.Keys(e.Topology)) {
		key, value := at+".topology."+domain, e.Topology[domain]
		switch {
		case domain == "" || strings.Contains(domain, "="):
			v.add(at+".topology", "expected the name of a domain without =, got %q", domain)
		case !printable(domain):
			v.add(at+".topology", "expected printable text, got %q", domain)
		case value == "":
			v.add(key, "expected where the engine stands in the domain")
		default:
			check(key, topologyTaint(domain, value))
		}
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
