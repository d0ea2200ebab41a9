package thompson

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The names of the default sets of [ReferenceConfig]. The toolkit has several, depending on
// which file it finds.
const (
	// SetConfigYAML is the file that it ships.
	SetConfigYAML = "config.yaml"
	// SetBuiltIn is what it has without a file.
	SetBuiltIn = "built-in"
	// SetMissingKey is what it takes for keys that a file does not have.
	SetMissingKey = "missing-key"
	// SetLegacy is what it had at first, with a much shorter memory.
	SetLegacy = "legacy"
)

// ReferenceConfig configures [Reference]. It comes from [ReferenceSet]; the zero value is
// not useful. The keys in the comments are those of the toolkit's file.
type ReferenceConfig struct {
	AffinityBase    float64 // affinity.base: for staying where the conversation is
	AffinityReuse   float64 // affinity.reuse_weight: per request still to come
	AffinityIAT     float64 // affinity.iat_weight: by how fast they come
	StickyLoadFloor float64 // affinity.sticky_load_floor: least load factor there

	BetaWeight      float64 // exploration.base_ts_weight
	TemperatureBase float64 // exploration.temperature.base
	TemperatureMin  float64 // exploration.temperature.min
	TemperatureMax  float64 // exploration.temperature.max

	SwitchBase  float64 // switching_cost.base: for leaving where the conversation is
	SwitchReuse float64 // switching_cost.reuse_penalty: per request still to come
	SwitchIAT   float64 // switching_cost.iat_penalty: by how fast they come

	QueueWeight       float64 // load_balancing.queue_penalty_weight
	GPUWeight         float64 // load_balancing.gpu_penalty_weight
	OutstandingWeight float64 // load_balancing.outstanding_work_weight
	JobGPUWeight      float64 // load_balancing.job_gpu_coupling_weight
	JobQueueWeight    float64 // load_balancing.job_queue_coupling_weight

	PrefillScale  float64 // prefill.token_scale: tokens, above 0
	PrefillWeight float64 // prefill.weight

	Lambda     float64 // lints.lambda: precision before anything is learned, above 0
	V          float64 // lints.v: how far samples go
	ForgetRate float64 // lints.forget_rate: what remains with each feedback, within (0, 1)

	Timeout       time.Duration // feedback.timeout_seconds, above 0
	SweepInterval time.Duration // feedback.sweep_interval_seconds; 0 with every decision
	TimeoutReward float64       // feedback.timeout_reward, from 0 to 1
	LatencyAlpha  float64       // feedback.latency_ema_alpha, above 0 and at most 1

	// MaxPrefixes and MaxPending bound what is remembered; 0 means [DefaultMaxPrefixes]
	// and [DefaultMaxPending].
	MaxPrefixes, MaxPending int
}

// ReferenceSet returns a default set by its name.
func ReferenceSet(name string) (ReferenceConfig, error) {
	c := ReferenceConfig{
		AffinityBase: 0.30, AffinityReuse: 0.15, AffinityIAT: 0.20, StickyLoadFloor: 0.01,
		BetaWeight: 0.10, TemperatureBase: 1, TemperatureMin: 0.15, TemperatureMax: 2,
		SwitchBase: 0.20, SwitchReuse: 0.08, SwitchIAT: 0.05,
		QueueWeight: 0.50, GPUWeight: 1, OutstandingWeight: 0.45, JobGPUWeight: 0.40, JobQueueWeight: 0.20,
		PrefillScale: 1024, PrefillWeight: 1,
		Lambda: 1, V: 0.25, ForgetRate: 0.995,
		Timeout: 120 * time.Second, SweepInterval: 5 * time.Second, LatencyAlpha: 0.2,
	}
	switch name {
	case SetBuiltIn:
	case SetConfigYAML:
		c.AffinityReuse, c.QueueWeight = 0.08, 1.5
		c.SwitchBase, c.SwitchReuse, c.SwitchIAT = 0.10, 0.04, 0.03
	case SetMissingKey:
		c.StickyLoadFloor = 0.70
	case SetLegacy:
		c.StickyLoadFloor, c.ForgetRate = 0.70, 0.7
	default:
		return c, fmt.Errorf("set %q: expected %s", name,
			strings.Join([]string{SetConfigYAML, SetBuiltIn, SetMissingKey, SetLegacy}, ", "))
	}
	return c, nil
}

// refField is a number of a configuration, by its key in the toolkit's file.
type refField struct {
	key       string
	value     *float64
	low, high float64 // what it may be; with clamp, what it is made
	clamp     bool
	open      bool // low itself is not allowed
}

// endless is the largest weight: far from where sums are no numbers any more.
const endless = 1e9

func (c *ReferenceConfig) fields() []refField {
	weight := func(key string, v *float64) refField { return refField{key: key, value: v, high: endless} }
	above := func(key string, v *float64, high float64) refField {
		return refField{key: key, value: v, high: high, open: true}
	}
	return []refField{
		weight("affinity.base", &c.AffinityBase),
		weight("affinity.reuse_weight", &c.AffinityReuse),
		weight("affinity.iat_weight", &c.AffinityIAT),
		{key: "affinity.sticky_load_floor", value: &c.StickyLoadFloor, high: 1},
		weight("exploration.base_ts_weight", &c.BetaWeight),
		above("exploration.temperature.base", &c.TemperatureBase, endless),
		weight("exploration.temperature.min", &c.TemperatureMin),
		above("exploration.temperature.max", &c.TemperatureMax, endless),
		weight("switching_cost.base", &c.SwitchBase),
		weight("switching_cost.reuse_penalty", &c.SwitchReuse),
		weight("switching_cost.iat_penalty", &c.SwitchIAT),
		weight("load_balancing.queue_penalty_weight", &c.QueueWeight),
		weight("load_balancing.gpu_penalty_weight", &c.GPUWeight),
		weight("load_balancing.outstanding_work_weight", &c.OutstandingWeight),
		weight("load_balancing.job_gpu_coupling_weight", &c.JobGPUWeight),
		weight("load_balancing.job_queue_coupling_weight", &c.JobQueueWeight),
		above("prefill.token_scale", &c.PrefillScale, endless),
		weight("prefill.weight", &c.PrefillWeight),
		above("lints.lambda", &c.Lambda, endless),
		weight("lints.v", &c.V),
		{key: "lints.forget_rate", value: &c.ForgetRate, low: 1e-6, high: 0.999999, clamp: true},
		{key: "feedback.timeout_reward", value: &c.TimeoutReward, high: 1, clamp: true},
		above("feedback.latency_ema_alpha", &c.LatencyAlpha, 1),
	}
}

// Override sets a member by its key in the toolkit's file, as "lints.v". Times are in
// seconds. An unknown key is an error; whether the value makes sense is seen by
// [NewReference].
func (c *ReferenceConfig) Override(key string, value float64) error {
	var d *time.Duration
	switch key {
	case "feedback.timeout_seconds":
		d = &c.Timeout
	case "feedback.sweep_interval_seconds":
		d = &c.SweepInterval
	}
	if d != nil {
		if !(value >= 0 && value <= 1e9) {
			return fmt.Errorf("%s: %v: expected seconds from 0 to 1e9", key, value)
		}
		*d = time.Duration(value * float64(time.Second))
		return nil
	}
	fields := c.fields()
	i := slices.IndexFunc(fields, func(f refField) bool { return f.key == key })
	if i < 0 {
		return fmt.Errorf("%q: no such key", key)
	}
	*fields[i].value = value
	return nil
}

// check clamps what is clamped, fills in what is left out, and says what cannot be.
func (c *ReferenceConfig) check() error {
	for _, f := range c.fields() {
		if f.clamp && !math.IsNaN(*f.value) {
			*f.value = min(max(*f.value, f.low), f.high)
		}
		switch v := *f.value; {
		case v >= f.low && v <= f.high && (!f.open || v > f.low):
		default:
			return fmt.Errorf("%s: %v: expected a number %s %v and at most %v", f.key, v, comparison(f.open), f.low, f.high)
		}
	}
	switch {
	case c.TemperatureMin > c.TemperatureMax:
		return fmt.Errorf("exploration.temperature: min %v is above max %v", c.TemperatureMin, c.TemperatureMax)
	case c.Timeout <= 0:
		return fmt.Errorf("feedback.timeout_seconds: %v: expected more than 0", c.Timeout.Seconds())
	case c.SweepInterval < 0:
		return fmt.Errorf("feedback.sweep_interval_seconds: %v: expected at least 0", c.SweepInterval.Seconds())
	}
	if c.MaxPrefixes <= 0 {
		c.MaxPrefixes = DefaultMaxPrefixes
	}
	if c.MaxPending <= 0 {
		c.MaxPending = DefaultMaxPending
	}
	return nil
}

func comparison(open bool) string {
	if open {
		return "above"
	}
	return "of at least"
}
