package replay

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Result is what became of one request. Times are on the clock of the run, which
// begins at 0.
type Result struct {
	// Arrived is when it came: as the trace says, or after the request before it
	// in its session was answered.
	Arrived time.Duration
	// Worker and Rank are where it ran; Worker is 0 if it was refused.
	Worker kv.WorkerID
	Rank   uint32
	// Admitted, First and Last are when it began to run and when its first and
	// last tokens came.
	Admitted, First, Last time.Duration
	// Second is when its second token came, 0 if it has none.
	Second time.Duration
	// Output is the number of tokens it got, and Cached the number of prompt
	// tokens found in the cache when it was first admitted.
	Output, Cached int
	// Done is false for a request that was refused or rejected.
	Done bool
}

// Report is what came of a run.
type Report struct {
	// Results are in the order of the trace.
	Results []Result
	// Completed, Refused (by the router) and Rejected (by an engine that could
	// never run it) add up to the requests of the trace.
	Completed, Refused, Rejected int
	// Input, Output and Cached are the tokens of completed requests.
	Input, Output, Cached int
	// Duration is the time of the last token.
	Duration time.Duration
	// Passes and Preemptions count what the engines did.
	Passes, Preemptions int
	// TTFT is from arrival to the first token, TTST from the first to the
	// second, ITL every gap between two tokens, TPOT the mean gap of a request
	// with at least two, and E2E from arrival to the last token.
	TTFT, TTST, ITL, TPOT, E2E Dist
}

// Reuse is the share of prompt tokens that were found in a cache.
func (r *Report) Reuse() float64 { return float64(r.Cached) / float64(max(r.Input, 1)) }

// report sums up.
func (r *run) report() *Report {
	out := &r.out
	out.Results = r.results
	var ttft, ttst, tpot, e2e []time.Duration
	for i := range r.results {
		res := &r.results[i]
		if !res.Done {
			continue
		}
		out.Completed++
		out.Input += r.trace.Requests[i].Input
		out.Output += res.Output
		out.Cached += res.Cached
		out.Duration = max(out.Duration, res.Last)
		ttft = append(ttft, res.First-res.Arrived)
		e2e = append(e2e, res.Last-res.Arrived)
		if res.Output > 1 {
			tpot = append(tpot, (res.Last-res.First)/time.Duration(res.Output-1))
			ttst = append(ttst, max(res.Second-res.First, 0))
		}
	}
	out.TTFT, out.TTST, out.TPOT, out.E2E = Describe(ttft), Describe(ttst), Describe(tpot), Describe(e2e)
	out.ITL = r.gaps.dist()
	return out
}
