package stator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/nvext"
)

// Feeds implements [router.FeedSampler].
func (f *follower) Feeds() []router.FeedSample {
	links := f.Stats()
	out := make([]router.FeedSample, len(links))
	for i := range links {
		feed := &links[i].Feed
		out[i] = router.FeedSample{
			FeedSample: metrics.FeedSample{
				Worker: uint64(links[i].Source.Worker), Rank: links[i].Source.Rank, Queue: feed.Queued, Lag: feed.Lag,
				Gaps: feed.Gaps, Missed: feed.Missed, Stale: feed.Stale, Restarts: feed.Restarts, Dropped: feed.Dropped + feed.Overflowed,
				Recoveries: make(map[string]uint64),
			},
			Skipped: map[string]uint64{kv.Malformed.String(): links[i].Malformed},
		}
		for o, n := range feed.Recoveries {
			out[i].Recoveries[kvfeed.Outcome(o).String()] = n
		}
		for r, n := range links[i].Skipped {
			out[i].Skipped[kv.Reason(r).String()] += n
		}
	}
	return out
}

// sampleEngines returns what the metrics show of engines.
func (s *Server) sampleEngines() []metrics.EngineSample {
	now := time.Now()
	links := make(map[kv.Source]kvlink.Stats)
	of := make(map[kv.WorkerID][]kvlink.Stats)
	for _, l := range s.links.Stats() {
		links[l.Source] = l
		of[l.Source.Worker] = append(of[l.Source.Worker], l)
	}
	var out []metrics.EngineSample
	for _, e := range s.router.Engines() {
		one := metrics.EngineSample{Worker: uint64(e.ID), Up: e.State == nvext.StateEligible, URL: e.Name}
		if e.Info != nil {
			one.Kind, one.Version = e.Info.Kind, e.Info.Version
		}
		for _, w := range s.warnings(&e, of[e.ID]) {
			if !slices.Contains(one.Warnings, w.Code) {
				one.Warnings = append(one.Warnings, w.Code)
			}
		}
		for _, r := range e.Ranks {
			if slices.ContainsFunc(one.Ranks, func(o metrics.EngineRankSample) bool { return o.Rank == r.Rank }) {
				continue // of another model
			}
			rank := metrics.EngineRankSample{
				Rank: r.Rank, Model: r.Model, TotalBlocks: r.TotalBlocks, BookedBlocks: r.ActiveBlocks,
				Told: !r.Reported.IsZero(), Running: r.Running, Waiting: r.Waiting, Age: now.Sub(r.Reported),
			}
			if r.TotalBlocks > 0 {
				rank.Usage = float64(r.UsedBlocks) / float64(r.TotalBlocks)
			}
			if l, ok := links[kv.Source{Worker: e.ID, Rank: r.Rank}]; ok {
				rank.Link, rank.Lag = l.State.String(), l.Lag
				rank.Batches, rank.Events, rank.Bytes, rank.Failures = l.Batches, l.Events, l.Bytes, l.Failures
				rank.Misplaced = l.Misplaced
			}
			one.Ranks = append(one.Ranks, rank)
		}
		out = append(out, one)
	}
	return out
}

// EngineInfo is what is known of one engine. What is not known is zero.
type EngineInfo struct {
	ID      uint64
	URL     string
	Kind    string // vllm, sglang, trtllm, llamacpp, sim or openai; empty until it has answered
	Version string
	Models  []string
	Ranks   int
	// BlockSize is the number of tokens in a KV block and KVBlocks that of blocks of a
	// rank.
	BlockSize, KVBlocks int
	// Events is where its first rank publishes what becomes of its KV cache, "polled"
	// for an engine that is asked; empty if nothing is known of its cache but what was
	// sent there. Replay says that what was missed can be asked for.
	Events string
	Replay bool
	// Warnings say what stands in the way of its best use, a sentence each.
	Warnings []string
}

// Engines returns what is known of all engines, in the order in which they came.
func (s *Server) Engines() []EngineInfo {
	var out []EngineInfo
	for _, e := range s.engines() {
		info := EngineInfo{
			ID: e.ID, URL: e.URL, Kind: e.Kind, Version: e.Version,
			Ranks: e.Ranks, BlockSize: e.BlockSize, KVBlocks: e.TotalBlocks,
		}
		for _, m := range e.Models {
			info.Models = append(info.Models, m.ID)
		}
		if len(e.Events) > 0 {
			info.Events, info.Replay = cmp.Or(e.Events[0].Address, "polled"), e.Events[0].Replay != ""
		}
		for _, w := range e.Warnings {
			info.Warnings = append(info.Warnings, w.Text)
		}
		out = append(out, info)
	}
	return out
}

// engines describes all workers.
func (s *Server) engines() []frontend.EngineStatus {
	now := time.Now()
	links := make(map[kv.WorkerID][]kvlink.Stats)
	for _, l := range s.links.Stats() {
		links[l.Source.Worker] = append(links[l.Source.Worker], l)
	}
	all := s.router.Engines()
	out := make([]frontend.EngineStatus, len(all))
	for i := range all {
		out[i] = s.describe(&all[i], links[all[i].ID], now)
	}
	return out
}

func (s *Server) describe(e *router.EngineStatus, links []kvlink.Stats, now time.Time) frontend.EngineStatus {
	st := frontend.EngineStatus{
		ID: uint64(e.ID), URL: e.Name, State: string(e.State), Origin: s.fleet.origin(e.ID),
		Models: []frontend.EngineModel{}, Events: []frontend.EngineEvents{}, Load: []frontend.EngineLoad{}, Warnings: []frontend.EngineWarning{},
	}
	if info := e.Info; info != nil {
		st.Kind, st.Version, st.Slots, st.Priority = info.Kind, info.Version, info.Slots, info.Priority.String()
		for _, m := range info.Models {
			st.Models = append(st.Models, frontend.EngineModel{ID: m.ID, Parent: m.Parent, ContextLength: m.ContextLength})
		}
	}
	for _, r := range e.Ranks {
		st.Ranks = max(st.Ranks, int(r.Rank)+1)
		st.BlockSize = cmp.Or(st.BlockSize, r.BlockSize)
		st.TotalBlocks = cmp.Or(st.TotalBlocks, r.TotalBlocks)
		load := frontend.EngineLoad{
			Rank: r.Rank, Inflight: r.Inflight, PrefillTokens: r.PrefillTokens, DecodeBlocks: r.ActiveBlocks,
			Running: r.Running, Waiting: r.Waiting, AgeSecs: ago(now, r.Reported),
		}
		if r.TotalBlocks > 0 {
			load.Usage = float64(r.UsedBlocks) / float64(r.TotalBlocks)
		}
		st.Load = append(st.Load, load)
	}
	for i := range links {
		st.Events = append(st.Events, events(&links[i], now))
	}
	for _, w := range s.warnings(e, links) {
		st.Warnings = append(st.Warnings, frontend.EngineWarning{Code: w.Code, Text: w.Text})
	}
	return st
}

// Warnings about a worker's events.
const (
	warnDisputed  = "events_disputed"
	warnShared    = "events_shared"
	warnMismatch  = "block_size_mismatch"
	warnTokenless = "no_tokenizer"
)

// warnings returns what stands in the way of a worker's best use: what it says itself,
// what showed while it was used, and what its events show.
func (s *Server) warnings(e *router.EngineStatus, links []kvlink.Stats) []engine.Warning {
	out := slices.Clip(e.Warnings)
	if s.follower.disputed(e.ID) {
		out = append(out, engine.Warning{Code: warnDisputed,
			Text: "several engines on this host and none says where it publishes its events: give each its events address"})
	}
	if s.follower.shared(e.ID) {
		out = append(out, engine.Warning{Code: warnShared,
			Text: "another engine publishes its events at the same address: they are one engine under two names, or one has the wrong events address"})
	}
	if e.Info != nil && e.Info.Kind == engine.TRTLLM && len(links) > 0 && s.cfg.Router.Mode == string(router.KV) && !s.tokenized(e.Info.Models) {
		out = append(out, engine.Warning{Code: warnTokenless,
			Text: "it does not give the tokens of chats, so that its events are of no use: give --tokenizer MODEL=REF"})
	}
	for _, l := range links {
		if l.Mismatch != 0 {
			out = append(out, engine.Warning{Code: warnMismatch, Text: fmt.Sprintf(
				"its events are of blocks of %d tokens, and it was taken to have blocks of %d: nothing is found in its cache; set block_size of this engine to that, or leave it out", l.Mismatch, l.BlockSize)})
			break
		}
	}
	return out
}

// tokenized reports whether all these models have a tokenizer of their own configured.
func (s *Server) tokenized(models []engine.Model) bool {
	for _, m := range models {
		if !slices.ContainsFunc(s.cfg.Models, func(c ModelConfig) bool {
			return (c.Name == m.ID || c.Name == m.Parent || c.Name == frontend.OtherModels) && c.Tokenizer != "none" && c.Tokenizer != tokensOfEngine
		}) {
			return false
		}
	}
	return true
}

func events(l *kvlink.Stats, now time.Time) frontend.EngineEvents {
	out := frontend.EngineEvents{
		Rank: l.Source.Rank, State: l.State.String(), Address: l.Address, Replay: l.Replay,
		Batches: l.Batches, Gaps: l.Feed.Gaps, Missed: l.Feed.Missed, LastSecs: ago(now, l.LastBatch),
	}
	if l.Timed {
		out.LagSecs = l.Lag.Seconds()
	}
	if l.LastError != nil {
		out.Error = l.LastError.Error()
	}
	return out
}

// ago returns the seconds since then, nil for never.
func ago(now, then time.Time) *float64 {
	if then.IsZero() {
		return nil
	}
	return new(max(0, now.Sub(then).Seconds()))
}
