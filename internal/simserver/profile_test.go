package simserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/simengine"
)

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	for file, text := range map[string]string{
		good: `{"prefill_isl":[0,1000],"prefill_ttft_ms":[10,20],"decode_active_kv_tokens":[0,1000],"decode_context_length":[0,1000],"decode_itl":[[3,3],[5,5]]}`,
		bad:  `{"prefill_isl":[0,1000]}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		profile  Profile
		modelled bool
		prefill  float64 // of 100 tokens
	}{
		{Linear, true, simengine.Linear.Prefill(&simengine.Batch{Prompts: 1, Tokens: 100})},
		{Polynomial, true, simengine.Polynomial.Prefill(&simengine.Batch{Prompts: 1, Tokens: 100})},
		{Profile(good), true, 11},
		{Fixed, false, 0},
		{Instant, false, 0},
	} {
		timing, err := tc.profile.Timing()
		if err != nil || (timing != nil) != tc.modelled || tc.profile.Modelled() != tc.modelled {
			t.Errorf("%s: %v, %v", tc.profile, timing, err)
			continue
		}
		if timing != nil && timing.Prefill(&simengine.Batch{Prompts: 1, Tokens: 100}) != tc.prefill {
			t.Errorf("%s: %v ms for a prompt, want %v", tc.profile, timing.Prefill(&simengine.Batch{Prompts: 1, Tokens: 100}), tc.prefill)
		}
	}
	if _, err := Profile(bad).Timing(); err == nil || !strings.HasPrefix(err.Error(), bad+": ") {
		t.Errorf("a file that lacks arrays: %v", err)
	}
	if _, err := Profile(filepath.Join(dir, "none.npz")).Timing(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, p := range []Profile{"", "liner", "profile.yaml"} {
		if _, err := p.Timing(); err == nil || !strings.HasPrefix(err.Error(), "expected linear, polynomial, fixed, instant or a file") {
			t.Errorf("%q: %v", p, err)
		}
	}
}
