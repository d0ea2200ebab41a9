package stator_test

import (
	"strings"
	"testing"

	"github.com/stator-ai/stator"
)

func TestThompsonConfig(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*stator.RouterConfig)
		want   string // in the error; empty for none
	}{
		{"defaults", func(*stator.RouterConfig) {}, ""},
		{"safe", func(r *stator.RouterConfig) { r.Policy = "thompson" }, ""},
		{"reference", func(r *stator.RouterConfig) {
			r.Policy, r.Thompson.Variant, r.Thompson.Defaults = "thompson", "reference", "legacy"
			r.Thompson.Override = "lints.v=0.3, affinity.base=0.2"
		}, ""},
		{"unknown policy", func(r *stator.RouterConfig) { r.Policy = "random" }, `router.policy: expected cost or thompson, got "random"`},
		{"unknown variant", func(r *stator.RouterConfig) { r.Thompson.Variant = "bold" }, "router.thompson.variant: expected safe, reference or shadow"},
		{"unknown set", func(r *stator.RouterConfig) { r.Thompson.Defaults = "x" }, "router.thompson.defaults: expected config.yaml"},
		{"unknown parameter", func(r *stator.RouterConfig) { r.Thompson.Override = "lints.w=1" }, "router.thompson.override: "},
		{"no number", func(r *stator.RouterConfig) { r.Thompson.Override = "lints.v" }, `router.thompson.override: expected names and numbers, as lints.v=0.3, got "lints.v"`},
		{"out of bounds", func(r *stator.RouterConfig) { r.Thompson.Override = "lints.lambda=-1" }, "router.thompson.override: "},
		{"no guard", func(r *stator.RouterConfig) { r.Thompson.Guard = 0 }, "router.thompson.guard: expected a number above 0"},
		{"negative budget", func(r *stator.RouterConfig) { r.Thompson.Budget = -1 }, "router.thompson.budget: "},
		{"other mode", func(r *stator.RouterConfig) { r.Policy, r.Mode = "thompson", "random" }, "router.policy: expected cost with router.mode random"},
	} {
		cfg := stator.DefaultConfig()
		cfg.Sim.Engines = 1
		c.change(&cfg.Router)
		err := cfg.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s in it", c.name, err, c.want)
		}
	}
}
