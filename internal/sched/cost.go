package sched

import "math"

// Cost is the selector that goes by what a request would cost on each rank,
// measured in blocks: the prompt tokens that it has to compute there after those
// that wait already, less what is in the cache, and the blocks that the rank holds.
// With the defaults it is the number of tokens to compute, in blocks, and the number
// of blocks held.
//
// All numbers are finite and none is negative. A Cost that does not change may be
// used by several goroutines.
type Cost struct {
	// PrefillScale weighs what is to be computed against the blocks held.
	PrefillScale float64
	// Credit is how much a block on the device counts. CreditDecay makes it count
	// less on a rank that has more prompt tokens to compute than the one that has
	// least: that a prompt is cached does not help while it waits.
	Credit, CreditDecay float64
	// HostWeight, DiskWeight and SharedWeight are how much blocks in other tiers
	// count, at most 1.
	HostWeight, DiskWeight, SharedWeight float64
	// RequestWeight is the cost of each request booked on the rank.
	RequestWeight float64
	// Temperature, if not 0, has chance choose: see [Softmax]. AbsoluteTemperature
	// takes it in blocks.
	Temperature         float64
	AbsoluteTemperature bool
	// NoPrefill leaves out what is to be computed.
	NoPrefill bool
	// NoLive leaves out of the cache what requests under way have not put there yet.
	NoLive bool
}

// DefaultCost returns the defaults.
func DefaultCost() Cost {
	return Cost{PrefillScale: 1, Credit: 1, HostWeight: 0.75, DiskWeight: 0.25}
}

// Select implements [Selector].
func (c *Cost) Select(d *Decision) int {
	least := c.leastPrefill(d.Candidates)
	var p price
	plain := c.CreditDecay <= 0 && !c.NoPrefill
	for i := range d.Candidates {
		cand := &d.Candidates[i]
		if at, all := cand.near(!c.NoLive); plain && all && cand.Taint == 1 && cand.Warmth == 1 {
			cand.Score = c.simply(d, cand, float64(at))
			continue
		}
		p.set(c, d, cand, least)
		cand.Score = bound(p.total())
	}
	if c.Temperature > 0 && len(d.Candidates) > 1 {
		d.Tied = 0
		return c.softmax().pick(d.Candidates, d.Rand.Float64())
	}
	return d.least()
}

// simply is what price comes to, to the last bit, where blocks are on the device only
// and nothing is special about the candidate, which is nearly always so.
func (c *Cost) simply(d *Decision, cand *Candidate, device float64) float64 {
	bs := float64(d.BlockSize)
	todo := float64(cand.PrefillTokens) + max(float64(d.PromptTokens), math.Round(bs*device))
	todo -= min(bs*(c.Credit*(cand.Trust*device)), todo)
	return bound(c.PrefillScale*(todo/bs) + (float64(cand.Blocks) + float64(cand.NewBlocks)) + c.RequestWeight*float64(cand.Requests))
}

func (c *Cost) softmax() Softmax {
	return Softmax{Temperature: c.Temperature, Absolute: c.AbsoluteTemperature}
}

// Propensities appends the probability with which each candidate would have been
// chosen, or returns dst as it is where the temperature has no part in it. Select has
// scored them.
func (c *Cost) Propensities(dst []float64, cands []Candidate) []float64 {
	if c.Temperature <= 0 || len(cands) < 2 {
		return dst
	}
	return c.softmax().Propensities(dst, cands)
}

// leastPrefill is what CreditDecay measures from.
func (c *Cost) leastPrefill(cands []Candidate) int {
	if c.CreditDecay <= 0 {
		return 0
	}
	least := math.MaxInt
	for i := range cands {
		least = min(least, cands[i].PrefillTokens)
	}
	return least
}

// price is a cost in its parts. What is to be computed stays in tokens until it is
// summed, and blocks are summed apart, so that candidates with as many of both cost
// exactly the same.
type price struct {
	waiting, prompt, credit float64 // tokens to be computed, and those that need not be
	block, scale            float64 // tokens in a block, and what computing it costs
	held, fresh, requests   float64 // of what is there
	taint, warmth           float64 // what the sum is multiplied with and divided by
}

// set makes it the price of a candidate. It is not returned by value, since copying
// it takes as long as the sums do.
func (p *price) set(c *Cost, d *Decision, cand *Candidate, least int) {
	bs := float64(d.BlockSize)
	p.block, p.scale = bs, c.PrefillScale
	p.waiting, p.prompt, p.credit = 0, 0, 0
	if !c.NoPrefill {
		device, host, disk, shared := cand.Cached(!c.NoLive)
		p.waiting = float64(cand.PrefillTokens)
		p.prompt = max(float64(d.PromptTokens), c.cachedTokens(d.BlockSize, device, host, disk))
		decay := 1.0
		if c.CreditDecay > 0 {
			behind := float64(cand.PrefillTokens-least) / bs
			decay = 1 / (1 + c.CreditDecay*behind/max(1, math.Ceil(float64(d.PromptTokens)/bs)))
		}
		credit := c.Credit*decay*(cand.Trust*device) +
			cand.Trust*(c.HostWeight*host+c.DiskWeight*disk+c.SharedWeight*shared)
		p.credit = min(bs*credit, p.waiting+p.prompt)
	}
	p.held = float64(cand.Blocks)
	p.fresh = float64(cand.NewBlocks)
	p.requests = c.RequestWeight * float64(cand.Requests)
	p.taint, p.warmth = cand.Taint, cand.Warmth
}

// compute is what it costs to compute so many tokens.
func (p *price) compute(tokens float64) float64 { return p.scale * (tokens / p.block) }

func (p *price) plain() float64 {
	return p.compute(p.waiting+p.prompt-p.credit) + (p.held + p.fresh) + p.requests
}

func (p *price) tainted() float64 { return p.plain() * p.taint }

func (p *price) total() float64 { return p.tainted() / p.warmth }

// bound keeps what is too large for a number apart from infinity, of which
// differences are not numbers.
func bound(v float64) float64 {
	if v > math.MaxFloat64 { // quicker than min, which looks for more
		return math.MaxFloat64
	}
	return v
}

// cachedTokens is how much of a prompt is taken from the cache, in tokens.
func (c *Cost) cachedTokens(blockSize int, device, host, disk float64) float64 {
	return math.Round(float64(blockSize) * (device + c.HostWeight*host + c.DiskWeight*disk))
}

// PrefillTokens returns how many tokens of the prompt the candidate has to compute.
func (c *Cost) PrefillTokens(d *Decision, cand *Candidate) int {
	device, host, disk, _ := cand.Cached(!c.NoLive)
	cached := c.cachedTokens(d.BlockSize, cand.Trust*device, cand.Trust*host, cand.Trust*disk)
	if cached >= float64(d.PromptTokens) {
		return 0
	}
	return d.PromptTokens - int(cached)
}

// Term is a part of a score.
type Term struct {
	Name  string
	Value float64
}

// Terms appends the parts of a candidate's score, which sum to it up to rounding.
// Those that have no part in it are left out.
func (c *Cost) Terms(dst []Term, d *Decision, i int) []Term {
	var p price
	p.set(c, d, &d.Candidates[i], c.leastPrefill(d.Candidates))
	add := func(name string, v float64, always bool) {
		if always || v != 0 {
			dst = append(dst, Term{name, v})
		}
	}
	add("queued_prefill", bound(p.compute(p.waiting)), !c.NoPrefill)
	add("prompt", bound(p.compute(p.prompt)), !c.NoPrefill)
	add("cache_credit", 0-bound(p.compute(p.credit)), !c.NoPrefill) // 0 without a sign
	add("active_blocks", p.held, true)
	add("new_blocks", p.fresh, true)
	add("active_requests", bound(p.requests), c.RequestWeight != 0)
	plain, tainted, total := bound(p.plain()), bound(p.tainted()), bound(p.total())
	add("taints", tainted-plain, false)
	add("slow_start", total-tainted, false)
	return dst
}
