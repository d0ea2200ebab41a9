package stator

import (
	"time"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
)

// router returns the configuration of the router. The error is that of a queue whose
// classes make no sense together.
func (c *RouterConfig) router() (router.Config, error) {
	mode, err := router.ParseMode(c.Mode)
	if err != nil {
		return router.Config{}, err
	}
	out := router.Config{
		Mode: mode,
		Thresholds: router.Thresholds{
			DecodeBlocks:  c.ActiveDecodeBlocksThreshold,
			PrefillTokens: c.ActivePrefillTokensThreshold,
			PrefillFrac:   c.ActivePrefillTokensThresholdFrac,
		},
		KV: router.KVConfig{
			Cost: &sched.Cost{
				PrefillScale:        c.Cost.PrefillLoadScale,
				Credit:              c.Cost.OverlapScoreCredit,
				CreditDecay:         c.Cost.OverlapScoreCreditDecay,
				HostWeight:          c.Cost.HostCacheHitWeight,
				DiskWeight:          c.Cost.DiskCacheHitWeight,
				SharedWeight:        c.Cost.SharedCacheMultiplier,
				RequestWeight:       c.Cost.DecodeActiveRequestWeight,
				Temperature:         c.Cost.Temperature,
				AbsoluteTemperature: c.Cost.TemperatureScale == "blocks",
				NoPrefill:           !c.KV.TrackPrefillTokens,
				NoLive:              !c.KV.PredictFromInflight,
			},
			NoEvents:       !c.KV.Events,
			TTL:            orNever(c.KV.TTL),
			MaxBlocks:      c.KV.MaxBlocks,
			PruneRatio:     c.KV.PruneRatio,
			NoReuse:        !c.KV.AssumeReuse,
			NoActiveBlocks: !c.KV.TrackActiveBlocks,
			TrackOutput:    c.KV.TrackOutputBlocks,
			SlowStart:      c.KV.SlowStart,
			NoTrust:        !c.KV.Trust,
			NoText:         !c.KV.TextRouting,
		},
		Decisions:     c.Decisions,
		Lease:         c.Lease,
		Inhibit:       c.Inhibit,
		ProbeInterval: c.ProbeInterval,
		LoadInterval:  c.LoadInterval,

		CanaryInterval: c.CanaryInterval,
		Seed:           c.Seed,
	}
	if out.Queue, err = c.Queue.router(); err != nil {
		return out, err
	}
	if c.Policy == "thompson" {
		out.Bandit, err = c.Thompson.bandit()
	}
	return out, err
}

// orNever returns d, or a negative time for 0.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// router returns the configuration of the router's queue, nil if there is none.
func (c *QueueConfig) router() (*router.QueueConfig, error) {
	if c.Threshold == nil && len(c.Classes) == 0 {
		return nil, nil
	}
	out := &router.QueueConfig{
		QueueConfig:  c.classes(),
		MaxWait:      c.MaxWait,
		RefreshAfter: orNever(c.RefreshAfter),
	}
	if len(out.Classes) == 0 {
		out.Classes = []sched.Class{{Name: "default", Policy: sched.Policy(c.Policy), Quantum: 1, BusyFrac: c.Threshold}}
	}
	_, err := sched.NewQueue(out.QueueConfig)
	return out, err
}

// classes returns the classes as they are configured, which may be none, and how
// requests are told apart by them.
func (c *QueueConfig) classes() sched.QueueConfig {
	out := sched.QueueConfig{
		DefaultFamily: c.DefaultFamily,
		MaxJump:       max(c.MaxHeadStart, 1), // 0 is none worth mentioning
	}
	for _, b := range c.Buckets {
		out.Buckets = append(out.Buckets, sched.Bucket{MinTokens: b.MinTokens, Name: b.Bucket})
	}
	for _, k := range c.Classes {
		policy := k.QueuePolicy
		if policy == "" {
			policy = c.Policy
		}
		out.Classes = append(out.Classes, sched.Class{
			Name: k.Name, Family: k.PolicyFamily, Bucket: k.CacheBucket,
			Policy: sched.Policy(policy), Quantum: k.Quantum,
			BusyTokens: k.PrefillBusyThreshold, BusyFrac: k.PrefillBusyThresholdFrac,
			MaxRequests: k.RequestQueueLimitPerWorker, MaxPromptTokens: k.RawISLTokenQueueLimitPerWorker,
			MaxCachedTokens: k.CachedTokenQueueLimitPerWorker,
		})
	}
	return out
}
