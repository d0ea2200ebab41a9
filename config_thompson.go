package stator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/thompson"
)

// ThompsonConfig is the policy thompson of mode kv: what it has learned from earlier
// requests decides among the ranks that the cost has scored.
type ThompsonConfig struct {
	// Variant is safe, reference or shadow. The safe policy learns by how much the cost is
	// wrong, and chooses only among ranks that cost little more than the cheapest, within a
	// budget. The reference policy is that of NeMo Agent Toolkit's router, which begins a
	// conversation anew that goes on beyond its expected calls; with the others nothing more
	// is expected of it. Shadow has the cost decide, and says what the safe policy would do.
	// Default safe.
	Variant string `koanf:"variant"`
	// Guard is by how much more than the cheapest rank one may cost that the safe policy
	// chooses, as a fraction above 0. Default 0.25.
	Guard float64 `koanf:"guard"`
	// Budget is how much the safe policy may lose at the beginning, in requests that cost
	// twice as much as they could, at least 0, and Allowance what each request adds to that.
	// Defaults 20 and 0.05.
	Budget    float64 `koanf:"budget"`
	Allowance float64 `koanf:"allowance"`
	// HalfLife is how long it takes until what the safe policy learned counts half. Default
	// 2m.
	HalfLife time.Duration `koanf:"half_life"`
	// Defaults is which of the toolkit's sets of parameters the reference policy has:
	// config.yaml, built-in, missing-key or legacy. Default config.yaml.
	Defaults string `koanf:"defaults"`
	// Override changes parameters of the reference policy, by their names in the toolkit's
	// file, with commas between them: "lints.v=0.3,affinity.base=0.2". None by default.
	Override string `koanf:"override"`
	// State is a file that what was learned is kept in between two runs, apart for the
	// reference policy and for the others, which learn the same. Each server needs its own:
	// of two with the same file, the last to stop wins. What was learned of a model that no
	// worker has had for an hour is dropped. Default none.
	State string `koanf:"state"`
}

func defaultThompson() ThompsonConfig {
	safe := thompson.DefaultSafe()
	return ThompsonConfig{
		Variant: "safe", Guard: safe.Guard, Budget: safe.Budget, Allowance: safe.Allowance, HalfLife: safe.HalfLife,
		Defaults: thompson.SetConfigYAML,
	}
}

// bandit returns the configuration of the policy.
func (c *ThompsonConfig) bandit() (*router.BanditConfig, error) {
	if c.Variant != "reference" {
		safe := thompson.DefaultSafe()
		safe.Shadow = c.Variant == "shadow"
		safe.Guard, safe.Budget, safe.Allowance, safe.HalfLife = c.Guard, c.Budget, c.Allowance, c.HalfLife
		safe.BudgetCap = max(safe.BudgetCap, c.Budget)
		_, err := thompson.NewSafe(safe)
		return &router.BanditConfig{Safe: safe}, err
	}
	ref, err := thompson.ReferenceSet(c.Defaults)
	if err != nil {
		return nil, err
	}
	if err := override(&ref, c.Override); err != nil {
		return nil, err
	}
	_, err = thompson.NewReference(ref)
	return &router.BanditConfig{Reference: &ref}, err
}

func (v *validator) thompson(r *RouterConfig) {
	v.oneOf("router.policy", r.Policy, "cost", "thompson")
	c := &r.Thompson
	v.oneOf("router.thompson.variant", c.Variant, "safe", "reference", "shadow")
	v.oneOf("router.thompson.defaults", c.Defaults, thompson.SetConfigYAML, thompson.SetBuiltIn, thompson.SetMissingKey, thompson.SetLegacy)
	v.nonNegative("router.thompson.budget", c.Budget)
	v.nonNegative("router.thompson.allowance", c.Allowance)
	v.positive("router.thompson.half_life", c.HalfLife)
	if !(c.Guard > 0) || c.Guard > 100 {
		v.add("router.thompson.guard", "expected a number above 0 and up to 100, got %v", c.Guard)
	}
	ref, err := thompson.ReferenceSet(c.Defaults)
	if err == nil {
		if err = override(&ref, c.Override); err == nil {
			_, err = thompson.NewReference(ref)
		}
		if err != nil {
			v.add("router.thompson.override", "%v", err)
		}
	}
	if c.Variant != "reference" {
		if _, err := c.bandit(); err != nil {
			v.add("router.thompson", "%v", err)
		}
	}
	if r.Policy == "thompson" && r.Mode != string(router.KV) {
		v.add("router.policy", "expected cost with router.mode %s: policies are of mode kv", r.Mode)
	}
}

// override sets parameters of the reference policy, as "lints.v=0.3,affinity.base=0.2".
func override(ref *thompson.ReferenceConfig, text string) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return fmt.Errorf("expected names and numbers, as lints.v=0.3, got %q", part)
		}
		if err := ref.Override(key, n); err != nil {
			return err
		}
	}
	return nil
}

// errState says which file of what was learned cannot be used.
func errState(path string, err error) error {
	return fmt.Errorf("router.thompson.state %s: %w", path, err)
}
