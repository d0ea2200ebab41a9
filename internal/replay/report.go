package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

// Result is what became of one request. Times are on the clock of the run, which
// begins at 0.
type Result struct {
	// Arrived is when it came: as the trace says, or after the request before it
	// in its session was answered.
	Arrived time.Duration
	// Placed is when the router gave it to an engine: later than Arrived if it waited
	// in the router's queue.
	Placed time.Duration
	// Worker and Rank are where it ran; Worker is 0 if it was refused.
	Worker kv.WorkerID
	Rank   uint32
	// Overlap is how many blocks of the prompt the router took the rank to hold; 0
	// unless the mode is kv.
	Overlap int
	// Admitted, First and Last are when it began to run and when its first and
	// last tokens came.
	Admitted, First, Last time.Duration
	// Second is when its second token came, 0 if it has none.
	Second time.Duration
	// Output is the number of tokens it got, and Cached the number of prompt
	// tokens found in the cache when it was first admitted.
	Output, Cached int
	// Verdict compares Cached with what the router had predicted. It is empty for a
	// request that is not done, and in modes that predict nothing.
	Verdict nvext.Verdict
	// Done is false for a request that was refused or rejected.
	Done bool
}

// Wait is how long the request waited in the router's queue.
func (r *Result) Wait() time.Duration { return max(r.Placed-r.Arrived, 0) }

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
	// with at least two, and E2E from arrival to the last token. Wait is the part of
	// TTFT before a rank was chosen.
	TTFT, TTST, ITL, TPOT, E2E, Wait Dist
	// Ranks is what each rank was given, in the order of worker and rank.
	Ranks []RankShare
	// Verdicts counts the completed requests by verdict; it is empty in modes that
	// predict nothing.
	Verdicts map[nvext.Verdict]int
}

// RankShare is what one rank was given. Requests are those placed on it; the tokens
// are of those that it completed.
type RankShare struct {
	Source                kv.Source
	Requests              int
	Input, Output, Cached int
}

// Reuse is the share of prompt tokens that were found in a cache.
func (r *Report) Reuse() float64 { return float64(r.Cached) / float64(max(r.Input, 1)) }

// String sums the report up in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %.1f s, %d refused, %d rejected; %d preemptions\n", r.Completed, r.Duration.Seconds(), r.Refused, r.Rejected, r.Preemptions)
	fmt.Fprintf(&b, "TTFT p50 %.0f ms, p95 %.0f ms, p99 %.0f ms; waited p95 %.0f ms; ITL p95 %.1f ms; E2E mean %.0f ms\n",
		r.TTFT.Median, r.TTFT.P95, r.TTFT.P99, r.Wait.P95, r.ITL.P95, r.E2E.Mean)
	fmt.Fprintf(&b, "%d of %d prompt tokens cached (%.2f %%)\n", r.Cached, r.Input, 100*r.Reuse())
	for i, s := range r.Ranks {
		fmt.Fprintf(&b, "%s%d/%d: %d", separator(i, "requests by rank: "), s.Source.Worker, s.Source.Rank, s.Requests)
	}
	b.WriteByte('\n')
	for i, v := range slices.Sorted(maps.Keys(r.Verdicts)) {
		fmt.Fprintf(&b, "%s%s %d", separator(i, "predictions: "), v, r.Verdicts[v])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// separator is what comes before item i of a list.
func separator(i int, title string) string {
	if i == 0 {
		return title
	}
	return ", "
}

// report sums up.
func (r *run) report() *Report {
	out := &r.out
	out.Results = r.results
	out.Verdicts = make(map[nvext.Verdict]int)
	for _, e := range r.engines {
		out.Ranks = append(out.Ranks, RankShare{Source: e.source})
	}
	var ttft, ttst, tpot, e2e, wait []time.Duration
	for i := range r.results {
		res := &r.results[i]
		if res.Worker == 0 {
			continue
		}
		share := &out.Ranks[r.engineOf(res.Worker, res.Rank)]
		share.Requests++
		if !res.Done {
			continue
		}
		share.Input += r.trace.Requests[i].Input
		share.Output += res.Output
		share.Cached += res.Cached
		if res.Verdict != "" {
			out.Verdicts[res.Verdict]++
		}
		wait = append(wait, res.Wait())
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
	out.ITL, out.Wait = r.gaps.dist(), Describe(wait)
	return out
}
