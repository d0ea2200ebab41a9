package metrics

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// counted is a sample with n of everything that is counted.
func counted(n uint64) IndexSample {
	all := EventCounts{n, n, n, n}
	return IndexSample{
		Stored: all, Removed: all, Cleared: all,
		Duplicates: n, Forgotten: n, Expired: n, Pruned: n,
		Skipped: map[string]uint64{"malformed": n, "not_registered": n, "too_many_ranks": n},
	}
}

func TestNoIndexNoSeries(t *testing.T) {
	for series := range samples(t, New(Options{})) {
		for _, prefix := range []string{eventPrefix + "kv", servicePrefix, "stator_index", "stator_feed", "stator_kv"} {
			if strings.HasPrefix(series, prefix) {
				t.Errorf("series %s", series)
			}
		}
	}
}

func TestWatchIndex(t *testing.T) {
	s := New(Options{})
	var sample IndexSample
	s.WatchIndex("Qwen/Qwen3-8B", func() IndexSample { return sample })
	want := map[string]float64{
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"}`:                     0,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="parent_block_not_found"}`: 0,
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="block_not_found"}`:       0,
		`dynamo_component_kv_cache_events_applied{event_type="cleared",status="invalid_block"}`:         0,
		`dynamo_component_kv_cache_event_warnings{warning_kind="duplicate_store"}`:                      0,
		`stator_index_ranks{model="Qwen/Qwen3-8B"}`:                                                     0,
		`stator_index_blocks{model="Qwen/Qwen3-8B"}`:                                                    0,
		`stator_index_orphans{model="Qwen/Qwen3-8B"}`:                                                   0,
		`stator_index_bytes{model="Qwen/Qwen3-8B"}`:                                                     0,
		`stator_index_forgotten_total{model="Qwen/Qwen3-8B"}`:                                           0,
		`stator_index_expired_total{model="Qwen/Qwen3-8B"}`:                                             0,
		`stator_index_pruned_total{model="Qwen/Qwen3-8B"}`:                                              0,
	}
	wantSamples(t, s, want)

	const worker = 1<<63 + 5 // larger than a float or a signed integer holds
	sample = IndexSample{
		Ranks: 1, Blocks: 2, Orphans: 3, Bytes: 4,
		Stored: EventCounts{5, 6, 0, 0}, Removed: EventCounts{0, 0, 7, 0}, Cleared: EventCounts{0, 0, 0, 8},
		Duplicates: 9, Forgotten: 10, Expired: 11, Pruned: 12,
		Skipped: map[string]uint64{"too_large": 13},
		Feeds: []FeedSample{
			{Worker: worker, Rank: 2, Queue: 14, Lag: 1500 * time.Millisecond, Gaps: 16, Missed: 17, Stale: 18, Restarts: 19, Dropped: 20, Recoveries: map[string]uint64{"dump": 21}},
			{Worker: worker, Rank: NoRank, Lag: -1}, // of a clock that went backwards
		},
	}
	const labels = `dp_rank="2",model="Qwen/Qwen3-8B",worker_id="9223372036854775813"`
	const none = `dp_rank="none",model="Qwen/Qwen3-8B",worker_id="9223372036854775813"`
	wantSamples(t, s, map[string]float64{
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"}`:                                      5,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="parent_block_not_found"}`:                  6,
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="block_not_found"}`:                        7,
		`dynamo_component_kv_cache_events_applied{event_type="cleared",status="invalid_block"}`:                          8,
		`dynamo_component_kv_cache_event_warnings{warning_kind="duplicate_store"}`:                                       9,
		`stator_index_ranks{model="Qwen/Qwen3-8B"}`:                                                                      1,
		`stator_index_blocks{model="Qwen/Qwen3-8B"}`:                                                                     2,
		`stator_index_orphans{model="Qwen/Qwen3-8B"}`:                                                                    3,
		`stator_index_bytes{model="Qwen/Qwen3-8B"}`:                                                                      4,
		`stator_index_forgotten_total{model="Qwen/Qwen3-8B"}`:                                                            10,
		`stator_index_expired_total{model="Qwen/Qwen3-8B"}`:                                                              11,
		`stator_index_pruned_total{model="Qwen/Qwen3-8B"}`:                                                               12,
		`stator_kv_events_skipped_total{model="Qwen/Qwen3-8B",reason="too_large"}`:                                       13,
		`stator_feed_queue_depth{` + labels + `}`:                                                                        14,
		`stator_feed_lag_seconds{` + labels + `}`:                                                                        1.5,
		`stator_feed_gaps_total{` + labels + `}`:                                                                         16,
		`stator_feed_missed_batches_total{` + labels + `}`:                                                               17,
		`stator_feed_stale_total{` + labels + `}`:                                                                        18,
		`stator_feed_restarts_total{` + labels + `}`:                                                                     19,
		`stator_feed_dropped_batches_total{` + labels + `}`:                                                              20,
		`stator_feed_recoveries_total{dp_rank="2",model="Qwen/Qwen3-8B",outcome="dump",worker_id="9223372036854775813"}`: 21,
		`stator_feed_lag_seconds{` + none + `}`:                                                                          0,
	})
}

// Indexes of one model share their series, and so do their feeds of one rank.
func TestWatchIndexesOfOneModel(t *testing.T) {
	s := New(Options{})
	sample := func(n int) func() IndexSample {
		return func() IndexSample {
			x := counted(uint64(n))
			x.Ranks, x.Blocks = n, 10*n
			x.Feeds = []FeedSample{{Worker: 1, Queue: n, Lag: time.Duration(n) * time.Second, Gaps: uint64(n), Recoveries: map[string]uint64{"gone": uint64(n)}}}
			return x
		}
	}
	s.WatchIndex("a", sample(1))
	stop := s.WatchIndex("a", sample(2))
	s.WatchIndex("b", sample(4))
	const feed = `dp_rank="0",model="a",worker_id="1"`
	wantSamples(t, s, map[string]float64{
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"}`:        7,
		`stator_index_ranks{model="a"}`:                                                    3,
		`stator_index_blocks{model="a"}`:                                                   30,
		`stator_index_pruned_total{model="a"}`:                                             3,
		`stator_index_pruned_total{model="b"}`:                                             4,
		`stator_kv_events_skipped_total{model="a",reason="malformed"}`:                     3,
		`stator_feed_queue_depth{` + feed + `}`:                                            3,
		`stator_feed_lag_seconds{` + feed + `}`:                                            2,
		`stator_feed_gaps_total{` + feed + `}`:                                             3,
		`stator_feed_recoveries_total{dp_rank="0",model="a",outcome="gone",worker_id="1"}`: 3,
	})

	stop()
	stop() // only the first counts
	for range 2 {
		wantSamples(t, s, map[string]float64{
			`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"}`: 7,
			`stator_index_ranks{model="a"}`:                                             1,
			`stator_index_blocks{model="a"}`:                                            10,
			`stator_index_pruned_total{model="a"}`:                                      3,
			`stator_kv_events_skipped_total{model="a",reason="malformed"}`:              3,
			`stator_kv_events_skipped_total{model="a",reason="not_registered"}`:         3,
			`stator_kv_events_skipped_total{model="a",reason="too_many_ranks"}`:         3,
			`stator_feed_queue_depth{` + feed + `}`:                                     1,
		})
	}
}

func TestStopLastIndex(t *testing.T) {
	s := New(Options{})
	n := uint64(1)
	stop := s.WatchIndex("a", func() IndexSample { return counted(n) })
	other := s.WatchIndex("a", func() IndexSample { return counted(10) })
	n = 3
	stop()
	other()
	// What all indexes counted stays; what one model's did, goes.
	wantSamples(t, s, map[string]float64{
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="ok"}`: 13,
		`dynamo_component_kv_cache_event_warnings{warning_kind="duplicate_store"}`:   13,
	})
	for series := range samples(t, s) {
		if strings.Contains(series, `model="a"`) {
			t.Errorf("series left: %s", series)
		}
	}

	s.WatchIndex("a", func() IndexSample { return counted(2) })
	wantSamples(t, s, map[string]float64{
		`dynamo_component_kv_cache_events_applied{event_type="removed",status="ok"}`: 15,
		`stator_index_expired_total{model="a"}`:                                      2,
	})
}

func TestIndexLabelsAreBounded(t *testing.T) {
	s := New(Options{})
	s.WatchIndex("bad \xff name", func() IndexSample {
		return IndexSample{
			Skipped: map[string]uint64{"made": 1, "up": 1},
			Feeds:   []FeedSample{{Worker: 1, Recoveries: map[string]uint64{"made": 1, "up": 1}}},
		}
	})
	x := s.IndexService()
	for _, v := range []string{"made", "up"} {
		x.Request("/"+v, v, http.StatusNotFound, 0)
	}
	wantSamples(t, s, map[string]float64{
		"stator_kv_events_skipped_total{model=\"bad \uFFFD name\",reason=\"other\"}":                              2,
		"stator_feed_recoveries_total{dp_rank=\"0\",model=\"bad \uFFFD name\",outcome=\"other\",worker_id=\"1\"}": 2,
		`dynamo_kvindexer_requests_total{endpoint="other",method="other"}`:                                        2,
		`dynamo_kvindexer_errors_total{endpoint="other",status_class="4xx"}`:                                      2,
	})
}

// A sample may take a lock that is held while indexes come and go.
func TestWatchIndexConcurrently(t *testing.T) {
	s := New(Options{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				mu.Lock()
				stop := s.WatchIndex("a", func() IndexSample {
					mu.Lock()
					defer mu.Unlock()
					return counted(1)
				})
				mu.Unlock()
				stop()
			}
		})
	}
	for range 20 {
		samples(t, s)
	}
	wg.Wait()
	wantSamples(t, s, map[string]float64{`dynamo_component_kv_cache_events_applied{event_type="cleared",status="ok"}`: 400})
}

func TestIndexService(t *testing.T) {
	s := New(Options{})
	x := s.IndexService()
	wantSamples(t, s, map[string]float64{
		`dynamo_kvindexer_models`:                     0,
		`dynamo_kvindexer_workers`:                    0,
		`dynamo_kvindexer_listeners{status="failed"}`: 0,
	})
	x.SetSize(2, 5)
	x.SetListeners(ListenerCounts{Pending: 1, Active: 2, Paused: 3, Failed: 4})
	x.Request("/query", http.MethodPost, http.StatusOK, 100*time.Microsecond)
	x.Request("/query", http.MethodPost, http.StatusInternalServerError, 150*time.Microsecond)
	x.Request("/dump", http.MethodGet, http.StatusConflict, time.Minute)
	s.IndexService() // as it was
	wantSamples(t, s, map[string]float64{
		`dynamo_kvindexer_models`:                                                         2,
		`dynamo_kvindexer_workers`:                                                        5,
		`dynamo_kvindexer_listeners{status="pending"}`:                                    1,
		`dynamo_kvindexer_listeners{status="active"}`:                                     2,
		`dynamo_kvindexer_listeners{status="paused"}`:                                     3,
		`dynamo_kvindexer_listeners{status="failed"}`:                                     4,
		`dynamo_kvindexer_requests_total{endpoint="/query",method="POST"}`:                2,
		`dynamo_kvindexer_requests_total{endpoint="/dump",method="GET"}`:                  1,
		`dynamo_kvindexer_errors_total{endpoint="/query",status_class="5xx"}`:             1,
		`dynamo_kvindexer_errors_total{endpoint="/dump",status_class="4xx"}`:              1,
		`dynamo_kvindexer_request_duration_seconds_bucket{endpoint="/query",le="0.0001"}`: 1,
		`dynamo_kvindexer_request_duration_seconds_bucket{endpoint="/query",le="0.0002"}`: 2,
		`dynamo_kvindexer_request_duration_seconds_bucket{endpoint="/dump",le="52.4288"}`: 0,
		`dynamo_kvindexer_request_duration_seconds_bucket{endpoint="/dump",le="+Inf"}`:    1,
	})
	wantAbsent(t, s, `dynamo_kvindexer_errors_total{endpoint="/query",status_class="4xx"}`)
}

func TestPrefixLeavesIndexService(t *testing.T) {
	s := New(Options{Prefix: "dynamo_kvindexer"}) // would panic on a clash of names
	s.Model("m").Start(time.Time{}, EndpointChatCompletions, false)
	wantSamples(t, s, map[string]float64{`dynamo_frontend_inflight_requests{model="m"}`: 1})
}
