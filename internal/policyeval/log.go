package policyeval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// Metric is what policies are compared by.
type Metric string

const (
	// MetricReward is [thompson.Reward], from 0 to 1: the share of the prompt that was
	// cached, the time to the first token and the time between tokens in one.
	MetricReward Metric = "reward"
	// MetricTTFT, MetricITL and MetricE2E are times: to the first token, between tokens,
	// and to the end of the answer. They begin with the choice: what a request waited
	// before it, in a queue or for its tokens, is not the choice's doing. Policies are
	// compared by the mean of the logarithm, which is shown as the geometric mean: a single
	// answer that took very long does not decide.
	MetricTTFT Metric = "ttft"
	MetricITL  Metric = "itl"
	MetricE2E  Metric = "e2e"
)

// Metrics lists all metrics, the default first.
var Metrics = []Metric{MetricReward, MetricTTFT, MetricITL, MetricE2E}

// ParseMetric reads the name of a metric.
func ParseMetric(name string) (Metric, error) {
	if m := Metric(name); slices.Contains(Metrics, m) {
		return m, nil
	}
	return "", fmt.Errorf("expected reward, ttft, itl or e2e, got %q", name)
}

// isTime reports whether less is better.
func (m Metric) isTime() bool { return m != MetricReward }

// Options say which rows become part of a [Log], and what they are worth. The zero value
// takes all models and compares by the reward.
type Options struct {
	// Metric is what policies are compared by; [MetricReward] if empty.
	Metric Metric
	// UnknownCacheIsZero takes nothing to have been cached where the engine does not say.
	// Otherwise such rows are left out where the metric needs to know.
	UnknownCacheIsZero bool
	// Model leaves out the requests for other models, unless it is empty.
	Model string
}

// Log is a collection of recorded decisions and of what came of them. Not safe for
// concurrent use.
type Log struct {
	opts      Options
	decisions []decision
	recorded  map[string]int // decisions by the policy that made them
	skipped   Skipped
}

// NewLog returns an empty log.
func NewLog(opts Options) *Log {
	opts.Metric = cmp.Or(opts.Metric, MetricReward)
	return &Log{opts: opts, recorded: make(map[string]int), skipped: make(Skipped)}
}

// decision is a row as policies see it.
type decision struct {
	promptTokens, blockSize int
	outputTokens            int
	// cands are those that could be chosen, by worker and rank. Their scores are the
	// recorded ones.
	cands  []sched.Candidate
	chosen int
	// odds is how likely the recorded policy was to choose each of them, and learned how
	// likely the policy that learns; nil where there was none.
	odds, learned []float64
	// costed is whether cost holds the parameters that costs can be computed with, and
	// scored whether the scores are these costs.
	cost           sched.Cost
	costed, scored bool
	// value is what the metric says: a reward, or milliseconds.
	value float64
}

// Len returns how many decisions there are.
func (l *Log) Len() int { return len(l.decisions) }

// Skipped returns how many rows were left out so far. It is the log's own.
func (l *Log) Skipped() Skipped { return l.skipped }

// Add takes a row in, or counts why it is left out. It keeps nothing of the row.
func (l *Log) Add(r *trace.Row) {
	if why := l.add(r); why != "" {
		l.skipped[why]++
	}
}

func (l *Log) add(r *trace.Row) Reason {
	switch {
	case l.opts.Model != "" && r.Model != l.opts.Model:
		return OtherModel
	case len(r.Attempts) == 0:
		return NotPlaced
	case r.Outcome != trace.OutcomeCompleted:
		return NotCompleted
	case r.Prompts > 1 || r.Choices > 1:
		return Several
	case len(r.Attempts) > 1:
		return Retried // what it took is not the last worker's alone
	}
	rec := r.Attempts[0].Routing
	if rec == nil || len(rec.Candidates) != rec.Considered {
		return NoDecision
	}
	value, why := l.value(r)
	if why != "" {
		return why
	}
	d, ok := recall(rec)
	if !ok {
		return Inconsistent
	}
	d.value = value
	if d.promptTokens < 1 {
		d.promptTokens = max(r.InputTokens, 1)
	}
	if r.OutputTokens != nil {
		d.outputTokens = max(*r.OutputTokens, 0)
	}
	l.decisions = append(l.decisions, d)
	l.recorded[madeBy(rec)]++
	return ""
}

// madeBy names the policy that made a decision, fit to be shown: that of the record, unless
// the policy that learns looked on while the cost decided.
func madeBy(rec *nvext.Routing) string {
	if rec.Policy == policyThompson && rec.Reason != nvext.ReasonThompson {
		return "cost"
	}
	return visible(cmp.Or(rec.Policy, rec.Mode, "unknown"))
}

// value returns what the metric says about a row, or why it cannot.
func (l *Log) value(r *trace.Row) (float64, Reason) {
	if !known(r.TTFTMS) && l.opts.Metric != MetricE2E {
		return 0, NoFirstToken
	}
	single := r.OutputTokens != nil && *r.OutputTokens <= 1
	switch l.opts.Metric {
	case MetricTTFT:
		return millis(sincePlaced(r, r.TTFTMS)), ""
	case MetricITL:
		if !known(r.AvgITLMS) {
			return 0, NoTokenTimes
		}
		return millis(*r.AvgITLMS), ""
	case MetricE2E:
		if !known(r.TotalTimeMS) {
			return 0, NoTokenTimes
		}
		return millis(sincePlaced(r, r.TotalTimeMS)), ""
	}
	var itl time.Duration // nobody waits between the tokens of an answer that has one
	switch {
	case known(r.AvgITLMS):
		itl = span(*r.AvgITLMS)
	case !single:
		return 0, NoTokenTimes
	}
	prompt, cached := r.InputTokens, 0
	if r.EngineInputTokens != nil {
		prompt = *r.EngineInputTokens
	}
	switch {
	case r.CachedTokens != nil:
		cached = *r.CachedTokens
	case !l.opts.UnknownCacheIsZero:
		return 0, NoCachedTokens
	}
	return thompson.Reward(float64(cached)/float64(max(prompt, 1)), span(sincePlaced(r, r.TTFTMS)), itl), ""
}

// known reports whether a time is there, and is one.
func known(ms *nvext.Float) bool {
	return ms != nil && *ms >= 0 && !math.IsInf(float64(*ms), 0)
}

// sincePlaced returns a time from a request's only placement on, given the time since its
// arrival, which counts whole where the row does not say when it was placed.
func sincePlaced(r *trace.Row, ms *nvext.Float) nvext.Float {
	if placed := r.Attempts[0].PlacedMS; known(placed) {
		return max(*ms-*placed, 0)
	}
	return *ms
}

// millis returns a time that has a logarithm: rows are exact to the microsecond.
func millis(ms nvext.Float) float64 { return max(float64(ms), 0.001) }

func span(ms nvext.Float) time.Duration {
	const most = float64(math.MaxInt64 / 2)
	return time.Duration(min(float64(ms)*float64(time.Millisecond), most))
}

// recall returns the decision that a record explains. It reports false if the record does
// not allow what was chosen.
func recall(rec *nvext.Routing) (decision, bool) {
	d := decision{promptTokens: rec.PromptTokens, blockSize: rec.BlockSize, chosen: -1}
	eligible := make([]*nvext.Candidate, 0, len(rec.Candidates))
	for i := range rec.Candidates {
		if c := &rec.Candidates[i]; c.State == nvext.StateEligible {
			eligible = append(eligible, c)
		}
	}
	slices.SortStableFunc(eligible, func(a, b *nvext.Candidate) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
	})
	d.cands = make([]sched.Candidate, len(eligible))
	for i, c := range eligible {
		d.cands[i] = router.RecallCandidate(c)
		if c.WorkerID == rec.Chosen.WorkerID && c.DPRank == rec.Chosen.DPRank {
			d.chosen = i
		}
	}
	if d.chosen < 0 {
		return d, false
	}
	if isMode(rec.Mode, "kv") && rec.PromptTokens > 0 && rec.BlockSize > 0 {
		d.costed, d.scored, d.cost = true, rec.Cost != nil, sched.DefaultCost()
		if rec.Cost != nil {
			d.cost = router.RecallCost(rec.Cost)
		}
	}
	if rec.Policy == policyThompson {
		d.learned = propensities(eligible)
	}
	d.odds = d.recordedOdds(rec, eligible)
	return d, sound(d.odds) && d.odds[d.chosen] > 0
}

// isMode reports whether a recorded mode is the one of that name, in any spelling that the
// router takes.
func isMode(recorded, name string) bool {
	return strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(recorded), "_", "-"), "-choices") == name
}
