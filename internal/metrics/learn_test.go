package metrics

import "testing"

func TestWatchLearner(t *testing.T) {
	const conversations, families = "stator_learn_conversations", "stator_learn_families"
	const evicted, forgotten = `stator_learn_evictions_total{kind="conversation"}`, `stator_learn_evictions_total{kind="family"}`
	s := New(Options{})
	wantAbsent(t, s, conversations, families, evicted, forgotten)
	var now LearnSample
	s.WatchLearner(func() LearnSample { return now })
	wantSamples(t, s, map[string]float64{conversations: 0, families: 0, evicted: 0, forgotten: 0})
	now = LearnSample{Conversations: 1, Families: 2, ConversationsEvicted: 3, FamiliesEvicted: 4}
	wantSamples(t, s, map[string]float64{conversations: 1, families: 2, evicted: 3, forgotten: 4})
	s.WatchLearner(func() LearnSample { return LearnSample{Families: 9} })
	wantSamples(t, s, map[string]float64{conversations: 0, families: 9, evicted: 0, forgotten: 0})
}
