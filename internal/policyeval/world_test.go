package policyeval

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// world is a fleet of which all is known: what a request costs each of four workers, and how
// long it takes there. Decisions have no effect on those after them.
type world struct {
	rnd  *rand.Rand
	cost sched.Cost
	// lies has rows claim that choices by the cost were made by chance alone.
	lies bool
}

func newWorld(seed uint64, temperature float64) *world {
	w := &world{rnd: rand.New(rand.NewPCG(seed, 7)), cost: sched.DefaultCost()}
	w.cost.Temperature = temperature
	return w
}

const worldBlock = 16

// request draws a prompt and the state of the workers.
func (w *world) request() *sched.Decision {
	d := &sched.Decision{PromptTokens: 200 + w.rnd.IntN(3000), BlockSize: worldBlock, Rand: w.rnd}
	blocks := d.PromptTokens / worldBlock
	for worker := range 4 {
		c := sched.Candidate{
			Worker: kv.WorkerID(worker + 1), Requests: w.rnd.IntN(6), PrefillTokens: w.rnd.IntN(4000), Blocks: w.rnd.IntN(300),
			NewBlocks: blocks, Trust: 1, Taint: 1, Warmth: 1,
		}
		if w.rnd.IntN(2) == 0 {
			hit := uint32(w.rnd.IntN(blocks + 1))
			c.Depth = [kv.NumTiers]uint32{hit, hit, hit, hit}
		}
		d.Candidates = append(d.Candidates, c)
	}
	return d
}

// outcome draws what comes of a choice: worker 1 is slower than the cost knows.
func (w *world) outcome(d *sched.Decision, i int) (cached int, ttft, itl time.Duration) {
	c := &d.Candidates[i]
	cached = int(c.Depth[kv.Device]) * worldBlock
	rate := 9000.0
	if c.Worker == 1 {
		rate = 4000
	}
	seconds := (0.02 + float64(c.PrefillTokens+d.PromptTokens-cached)/rate) * math.Exp(0.3*w.rnd.NormFloat64())
	return cached, time.Duration(seconds * float64(time.Second)), time.Duration(10+2*c.Requests) * time.Millisecond
}

func (w *world) reward(d *sched.Decision, i int) float64 {
	cached, ttft, itl := w.outcome(d, i)
	return thompson.Reward(float64(cached)/float64(d.PromptTokens), ttft, itl)
}

// truth is the mean reward of each policy, from many requests.
func (w *world) truth(policies []*Policy) []float64 {
	const n = 200_000
	out := make([]float64, len(policies))
	var odds []float64
	for range n {
		d := w.request()
		w.cost.Select(d)
		dec := &decision{
			promptTokens: d.PromptTokens, blockSize: worldBlock, cands: d.Candidates, costed: true, scored: true, cost: w.cost,
			odds: costOdds(nil, &w.cost, d.Candidates),
		}
		var rewards [4]float64
		for i := range rewards {
			rewards[i] = w.reward(d, i)
		}
		for k, p := range policies {
			odds, _ = p.odds(odds[:0], dec)
			for i, share := range odds {
				out[k] += share * rewards[i] / n
			}
		}
	}
	return out
}

// row has the recorded policy place a request.
func (w *world) row() *trace.Row {
	d := w.request()
	chosen := w.cost.Select(d)
	cached, ttft, itl := w.outcome(d, chosen)
	rec := &nvext.Routing{
		Model: "m", Mode: "kv", Policy: "cost", Reason: nvext.ReasonCost, Considered: len(d.Candidates) + 1,
		PromptTokens: d.PromptTokens, BlockSize: worldBlock, TotalBlocks: (d.PromptTokens + worldBlock - 1) / worldBlock,
		Cost: &nvext.CostParams{
			PrefillLoadScale: nvext.Float(w.cost.PrefillScale), OverlapScoreCredit: nvext.Float(w.cost.Credit),
			HostCacheHitWeight: nvext.Float(w.cost.HostWeight), DiskCacheHitWeight: nvext.Float(w.cost.DiskWeight),
			RouterTemperature: nvext.Float(w.cost.Temperature),
		},
	}
	odds := w.cost.Propensities(nil, d.Candidates)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		out := nvext.Candidate{
			WorkerID: uint64(c.Worker), State: nvext.StateEligible, Inflight: c.Requests, ActivePrefillTokens: int64(c.PrefillTokens),
			ActiveDecodeBlocks: int64(c.Blocks), NewBlocks: int64(c.NewBlocks), OverlapBlocks: int(c.Depth[kv.Device]), Score: nvext.Float(c.Score),
		}
		if odds != nil {
			out.Propensity = new(nvext.Float(odds[i]))
		}
		if w.lies {
			out.Propensity = new(nvext.Float(0.25))
		}
		rec.Candidates = append(rec.Candidates, out)
	}
	rec.Chosen = rec.Candidates[chosen]
	rec.Candidates = append(rec.Candidates, nvext.Candidate{WorkerID: 9, State: nvext.StateInhibited, Score: nvext.Float(math.NaN())})
	output := 100
	return &trace.Row{
		Schema: trace.Schema, RequestID: "r", Model: "m", Endpoint: "chat_completions", InputTokens: d.PromptTokens,
		Attempts: []trace.Attempt{{Routing: rec}}, TTFTMS: trace.MS(ttft), AvgITLMS: trace.MS(itl),
		TotalTimeMS: trace.MS(ttft + time.Duration(output)*itl), OutputTokens: &output, CachedTokens: &cached, Outcome: trace.OutcomeCompleted, Status: 200,
	}
}

// log returns a log of so many rows.
func (w *world) log(rows int, opts Options) *Log {
	l := NewLog(opts)
	for range rows {
		l.Add(w.row())
	}
	return l
}
