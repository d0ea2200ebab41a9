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
	v.positive("router.load_interval", r.LoadInterval)
	v.atLeast("router.canary_interval", r.CanaryInterval, 0)
	if t := r.ActiveDecodeBlocksThreshold; t != nil {
		v.between("router.active_decode_blocks_threshold", *t, 0, 1)
	}
	if t := r.ActivePrefillTokensThresholdFrac; t != nil {
		v.nonNegative("router.active_prefill_tokens_threshold_frac", *t)
	}
	if s := r.OverloadStatus; s != 503 && s != 429 && s != 529 {
		v.add("router.overload_status", "expected 503, 429 or 529, got %d", s)
	}
	v.thompson(r)
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
	v.oneOf("router.queue.policy", q.Policy, "fcfs", "lcfs", "wspt")
	v.atLeast("router.queue.max_wait", q.MaxWait, 0)
	v.atLeast("router.queue.max_head_start", q.MaxHeadStart, 0)
	v.atLeast("router.queue.refresh_after", q.RefreshAfter, 0)
	if len(q.Classes) == 0 {
		if q.DefaultFamily != "" {
			v.add("router.queue.default_policy_family", "expected with router.queue.policy_classes only")
		}
		if len(q.Buckets) > 0 {
			v.add("router.queue.uncached_isl_buckets", "expected with router.queue.policy_classes only")
		}
		return
	}
	own := *q
	own.Policy = "" // what is wrong with it is not wrong with the classes that have none
	for _, err := range own.classes().Check("router.queue.") {
		v.add(err.Field, "%s", err.Problem)
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
