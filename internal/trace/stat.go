package trace

import (
	"slices"
	"time"
)

// Stats is what a trace is like.
type Stats struct {
	Requests int `json:"requests"`
	// Skipped is how many rows were left out, and SkippedFor says why.
	Skipped    int     `json:"skipped"`
	SkippedFor Skipped `json:"skipped_for"`
	// Clamped is [Trace.Clamped].
	Clamped int `json:"clamped"`
	// Unhashed is how many prompts have blocks that nothing is known of, and which
	// therefore count as shared with nobody.
	Unhashed int `json:"unhashed"`
	// SpanSeconds is the time from the first arrival to the last.
	SpanSeconds       float64 `json:"span_s"`
	RequestsPerSecond float64 `json:"requests_per_s"`
	// Sessions is the number of conversations that are named, and Follows that of
	// requests which wait for an answer before them.
	Sessions int `json:"sessions"`
	Follows  int `json:"follows"`
	// Timestamps is the number of different arrival times, and MaxSameTimestamp the
	// most requests at one of them.
	Timestamps       int `json:"timestamps"`
	MaxSameTimestamp int `json:"max_same_timestamp"`
	// Gaps are the times between two successive ones of them; zero for a trace that
	// has only one.
	Gaps Gaps `json:"timestamp_gaps"`
	// Input and Output are the lengths of prompts and answers in tokens.
	Input  Lengths `json:"input_tokens"`
	Output Lengths `json:"output_tokens"`

	// BlockSize is the number of tokens in a block.
	BlockSize int `json:"block_size"`
	// Blocks counts the blocks of all prompts, partial ones included.
	Blocks int `json:"blocks"`
	// DistinctBlocks counts equal ones once.
	DistinctBlocks int `json:"distinct_blocks"`
	// OnceBlocks counts those that are in one prompt only.
	OnceBlocks int `json:"blocks_used_once"`
	// FullBlocks counts the blocks that are not partial.
	FullBlocks int `json:"full_blocks"`
	// Efficiency is the share of blocks that a cache without limit would hold
	// already.
	Efficiency float64 `json:"cache_efficiency"`
	// FirstBlockRequests is the number of requests that begin with the most common
	// first block. If that is most of them, a router that goes by the longest
	// prefix alone sends them all to one worker.
	FirstBlockRequests int `json:"most_common_first_block_requests"`
}

// Gaps describes times between arrivals.
type Gaps struct {
	MinMS    float64 `json:"min_ms"`
	MedianMS float64 `json:"p50_ms"`
	MaxMS    float64 `json:"max_ms"`
}

// Lengths describes numbers of tokens.
type Lengths struct {
	Sum  int64   `json:"sum"`
	Mean float64 `json:"mean"`
	Min  int     `json:"min"`
	P50  int     `json:"p50"`
	P75  int     `json:"p75"`
	P90  int     `json:"p90"`
	P95  int     `json:"p95"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
}

// Stat describes a trace.
func Stat(t *Trace) Stats {
	s := Stats{Requests: len(t.Requests), Skipped: t.Skipped.Rows(), SkippedFor: t.Skipped, Clamped: t.Clamped, BlockSize: t.BlockSize}
	for i := range t.Requests {
		if r := &t.Requests[i]; len(r.Blocks) < r.Input/t.BlockSize {
			s.Unhashed++
		}
	}
	if len(t.Requests) == 0 {
		return s
	}
	inputs, outputs := make([]int, len(t.Requests)), make([]int, len(t.Requests))
	uses := make([]int32, t.idBound())
	firsts := make(map[uint32]int)
	sessions := make(map[string]struct{})
	for i := range t.Requests {
		r := &t.Requests[i]
		inputs[i], outputs[i] = r.Input, r.Output
		unknown := t.unknown(r) // each of them used once
		s.DistinctBlocks += unknown
		s.OnceBlocks += unknown
		s.Blocks += len(r.Blocks) + unknown
		s.FullBlocks += r.Input / t.BlockSize
		for _, id := range r.Blocks {
			uses[id]++
		}
		if r.Session != "" {
			sessions[r.Session] = struct{}{}
		}
		if r.Follows {
			s.Follows++
		}
		begin := 1
		if len(r.Blocks) > 0 {
			firsts[r.Blocks[0]]++
			begin = firsts[r.Blocks[0]]
		}
		s.FirstBlockRequests = max(s.FirstBlockRequests, begin)
	}
	s.Sessions = len(sessions)
	s.Input, s.Output = lengths(inputs), lengths(outputs)
	for _, n := range uses {
		if n > 0 {
			s.DistinctBlocks++
		}
		if n == 1 {
			s.OnceBlocks++
		}
	}
	s.Efficiency = 1 - ratio(s.DistinctBlocks, s.Blocks)
	s.arrivals(t)
	return s
}

// arrivals fills in what is said about arrival times.
func (s *Stats) arrivals(t *Trace) {
	times := make([]time.Duration, len(t.Requests))
	for i := range t.Requests {
		times[i] = t.Requests[i].Arrival
	}
	slices.Sort(times)
	span := times[len(times)-1] - times[0]
	s.SpanSeconds = span.Seconds()
	if span > 0 {
		s.RequestsPerSecond = float64(len(times)) / s.SpanSeconds
	}
	var gaps []time.Duration
	for i, same := 0, 0; i < len(times); i++ {
		if i > 0 && times[i] != times[i-1] {
			gaps = append(gaps, times[i]-times[i-1])
			same = 0
		}
		same++
		s.MaxSameTimestamp = max(s.MaxSameTimestamp, same)
	}
	s.Timestamps = len(gaps) + 1
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	s.Gaps = Gaps{MinMS: ms(gaps[0]), MedianMS: ms(gaps[rank(len(gaps), 50)]), MaxMS: ms(gaps[len(gaps)-1])}
}

// lengths describes numbers, which it sorts.
func lengths(n []int) Lengths {
	slices.Sort(n)
	var sum int64
	for _, v := range n {
		sum += int64(v)
	}
	at := func(p int) int { return n[rank(len(n), p)] }
	return Lengths{
		Sum: sum, Mean: float64(sum) / float64(len(n)),
		Min: n[0], P50: at(50), P75: at(75), P90: at(90), P95: at(95), P99: at(99), Max: n[len(n)-1],
	}
}

// rank returns the index of percentile p among n sorted values: that nearest to
// (n-1)·p/100, the upper of two. There is no interpolation.
func rank(n, p int) int { return ((n-1)*p + 50) / 100 }

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
