package collect

// Weights say how much each part counts in a [Score].
type Weights struct {
	KV   float64 `yaml:"kv" json:"kv"`
	TTFT float64 `yaml:"ttft" json:"ttft"`
	ITL  float64 `yaml:"itl" json:"itl"`
}

// DefaultWeights returns 0.4 for the cache, 0.4 for the first token, 0.2 for the others.
func DefaultWeights() Weights { return Weights{KV: 0.4, TTFT: 0.4, ITL: 0.2} }

func (w *Weights) named() []named {
	return []named{{"kv", &w.KV}, {"ttft", &w.TTFT}, {"itl", &w.ITL}}
}

// Targets are the latencies in seconds that have the full score.
type Targets struct {
	TTFT float64 `yaml:"ttft" json:"ttft"`
	ITL  float64 `yaml:"itl" json:"itl"`
}

// DefaultTargets returns half a second to the first token and 50 ms between two.
func DefaultTargets() Targets { return Targets{TTFT: 0.5, ITL: 0.05} }

func (t *Targets) named() []named { return []named{{"ttft", &t.TTFT}, {"itl", &t.ITL}} }

// minLatency is the shortest latency that a score tells apart, in seconds.
const minLatency = 0.001

// Score sums up KV efficiency and the 95th percentiles of the latencies, in seconds, in one
// number, of which more is better: efficiency times its weight, and each weight of a
// latency times how near it is to its target, at most once. A latency of exactly 0 counts
// as the target. With weights that add up to 1 and an efficiency of at most 1 it is from 0
// to 1. It is nil if one of the three is.
func Score(kv, ttft, itl *float64, w Weights, t Targets) *float64 {
	if kv == nil || ttft == nil || itl == nil {
		return nil
	}
	s := w.KV**kv + w.TTFT*reached(*ttft, t.TTFT) + w.ITL*reached(*itl, t.ITL)
	return &s
}

// reached is 1 for a latency within its target, and less the longer it is.
func reached(latency, target float64) float64 {
	if latency == 0 {
		latency = target
	}
	return min(1, target/max(latency, minLatency))
}
