package policyeval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/sched"
)

// Policy is a way to choose among the candidates of a recorded decision. [ParsePolicy] makes
// one. Not safe for concurrent use.
type Policy struct {
	name string
	// odds appends how likely each candidate is, or reports false where the decision does
	// not hold what the policy goes by.
	odds func(dst []float64, d *decision) ([]float64, bool)
}

// String returns the policy as [ParsePolicy] reads it.
func (p *Policy) String() string { return p.name }

// PolicyNames lists what [ParsePolicy] understands.
var PolicyNames = []string{"logged", "cost", "thompson", "least-loaded", "power-of-two", "random", "round-robin"}

// ParsePolicy reads a policy: one of [PolicyNames], or cost with parameters, such as
// cost:overlap_score_credit=2,prefill_load_scale=4. Those that are not named stay as they
// were recorded.
func ParsePolicy(text string) (*Policy, error) {
	name, params, given := strings.Cut(text, ":")
	p := &Policy{name: text}
	switch name {
	case "cost":
		if given {
			change, err := parseCost(params)
			if err != nil {
				return nil, fmt.Errorf("policy cost: %w", err)
			}
			p.odds = otherCost(change)
			return p, nil
		}
		p.odds = plainCost
	case "logged":
		p.odds = func(dst []float64, d *decision) ([]float64, bool) { return append(dst, d.odds...), true }
	case "thompson":
		p.odds = func(dst []float64, d *decision) ([]float64, bool) {
			return append(dst, d.learned...), d.learned != nil
		}
	case "least-loaded":
		p.odds = func(dst []float64, d *decision) ([]float64, bool) { return leastLoaded(dst, d.cands), true }
	case "power-of-two":
		p.odds = func(dst []float64, d *decision) ([]float64, bool) { return powerOfTwo(dst, d.cands), true }
	case "random", "round-robin":
		p.odds = func(dst []float64, d *decision) ([]float64, bool) { return uniform(dst, len(d.cands)), true }
	default:
		return nil, fmt.Errorf("policy %q: expected one of %s, or cost:NAME=NUMBER,…", text, strings.Join(PolicyNames, ", "))
	}
	if given {
		return nil, fmt.Errorf("policy %s: expected no parameters, got %q", name, params)
	}
	return p, nil
}

// Policies returns the policies that can be seen in all decisions of the log, of those that
// have no parameters and are not the same as another.
func (l *Log) Policies() []*Policy {
	var out []*Policy
	for _, name := range []string{"logged", "cost", "thompson", "least-loaded", "random"} {
		p, err := ParsePolicy(name)
		if err != nil {
			panic(err) // they are all known
		}
		if p.fits(l.decisions) {
			out = append(out, p)
		}
	}
	return out
}

// fits reports whether the policy can be seen in all decisions.
func (p *Policy) fits(decisions []decision) bool {
	var odds []float64
	for i := range decisions {
		var ok bool
		if odds, ok = p.see(odds[:0], &decisions[i]); !ok {
			return false
		}
	}
	return true
}

// see appends how likely the policy is to choose each candidate, or reports false where it
// cannot be seen in the decision. Of one candidate, all policies make the same.
func (p *Policy) see(dst []float64, d *decision) ([]float64, bool) {
	if len(d.cands) == 1 {
		return append(dst, 1), true
	}
	odds, ok := p.odds(dst, d)
	return odds, ok && sound(odds[len(dst):])
}

// plainCost chooses the lowest recorded cost; where something else decided, the lowest by
// default parameters.
func plainCost(dst []float64, d *decision) ([]float64, bool) {
	if !d.scored {
		return otherCost(func(*sched.Cost) {})(dst, d)
	}
	lowest := d.cost
	lowest.Temperature = 0
	return costOdds(dst, &lowest, d.cands), true
}

// otherCost chooses by costs with other parameters.
func otherCost(change func(*sched.Cost)) func([]float64, *decision) ([]float64, bool) {
	// What it draws is of no account: only the scores are.
	chance := rand.New(rand.NewPCG(0, 0))
	var cands []sched.Candidate
	return func(dst []float64, d *decision) ([]float64, bool) {
		if !d.costed {
			return dst, false
		}
		cost := d.cost
		cost.Temperature = 0
		change(&cost)
		cands = append(cands[:0], d.cands...)
		cost.Select(&sched.Decision{PromptTokens: d.promptTokens, BlockSize: d.blockSize, Candidates: cands, Rand: chance})
		return costOdds(dst, &cost, cands), true
	}
}

type costParam struct {
	name string
	most float64
	of   func(*sched.Cost) *float64
}

// costParams are the parameters of a cost, by the names that a request's override and the
// configuration have for them.
var costParams = []costParam{
	{"overlap_score_credit", math.MaxFloat32, func(c *sched.Cost) *float64 { return &c.Credit }},
	{"overlap_score_credit_decay", math.MaxFloat32, func(c *sched.Cost) *float64 { return &c.CreditDecay }},
	{"prefill_load_scale", math.MaxFloat32, func(c *sched.Cost) *float64 { return &c.PrefillScale }},
	{"decode_active_request_weight", math.MaxFloat32, func(c *sched.Cost) *float64 { return &c.RequestWeight }},
	{"host_cache_hit_weight", 1, func(c *sched.Cost) *float64 { return &c.HostWeight }},
	{"disk_cache_hit_weight", 1, func(c *sched.Cost) *float64 { return &c.DiskWeight }},
	{"shared_cache_multiplier", 1, func(c *sched.Cost) *float64 { return &c.SharedWeight }},
	{"router_temperature", math.MaxFloat32, func(c *sched.Cost) *float64 { return &c.Temperature }},
}

// parseCost reads NAME=NUMBER, and more after commas.
func parseCost(text string) (func(*sched.Cost), error) {
	type setting struct {
		of    func(*sched.Cost) *float64
		value float64
	}
	var settings []setting
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(costParams, func(p costParam) bool { return p.name == strings.TrimSpace(name) })
		if i < 0 {
			names := make([]string, len(costParams))
			for i := range costParams {
				names[i] = costParams[i].name
			}
			return nil, fmt.Errorf("parameter %q: expected one of %s", name, strings.Join(names, ", "))
		}
		p := &costParams[i]
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0 && v <= p.most) {
			if p.most == 1 {
				return nil, fmt.Errorf("%s: expected a number from 0 to 1, got %q", p.name, number)
			}
			return nil, fmt.Errorf("%s: expected a number of at least 0, got %q", p.name, number)
		}
		settings = append(settings, setting{p.of, v})
	}
	return func(c *sched.Cost) {
		for _, s := range settings {
			*s.of(c) = s.value
		}
	}, nil
}
