package nvext

import (
	"errors"
	"iter"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pairs yields names and values in order.
func pairs(kv ...string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(kv); i += 2 {
			if !yield(kv[i], kv[i+1]) {
				return
			}
		}
	}
}

func TestApplyMeta(t *testing.T) {
	tests := []struct {
		name string
		in   iter.Seq2[string, string]
		want map[string]string
	}{
		{"none", pairs("Content-Type", "text/plain", "X-Dynamo-Met", "1"), nil},
		{"some", pairs("X-Dynamo-Meta-Trace-Id", "t", "x-dynamo-meta-UPPER", "u", "X-Dynamo-Meta-", "no key"), map[string]string{"trace-id": "t", "upper": "u"}},
		{"last value", pairs("X-Dynamo-Meta-A", "1", "X-Dynamo-Meta-A", "2"), map[string]string{"a": "2"}},
		{"credentials", pairs(
			"X-Dynamo-Meta-Authorization", "Basic abc", "X-Dynamo-Meta-Proxy-Authorization", "x",
			"X-Dynamo-Meta-Token", " bEaReR abc", "X-Dynamo-Meta-Note", "bearers of news"), map[string]string{"note": "bearers of news"}},
	}
	for _, tt := range tests {
		e, err := ApplyMeta(nil, tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want == nil {
			if e != nil {
				t.Errorf("%s: %v, want nil", tt.name, e)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, e.Meta); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		body := &NvExt{}
		if got, err := ApplyMeta(body, tt.in); got != body || err != nil || !maps.Equal(body.Meta, tt.want) {
			t.Errorf("%s: over a body: %v, %v", tt.name, got, err)
		}
	}
}

func TestApplyMetaLimits(t *testing.T) {
	entries := func(n int) []string {
		var kv []string
		for i := range n {
			kv = append(kv, "X-Dynamo-Meta-K"+strconv.Itoa(i), "v")
		}
		return kv
	}
	tests := []struct {
		name string
		kv   []string
		ok   bool
	}{
		{"64 entries", entries(64), true},
		{"65 entries", entries(65), false},
		{"64 KiB", []string{"X-Dynamo-Meta-K", strings.Repeat("v", 64<<10-1)}, true},
		{"a byte more", []string{"X-Dynamo-Meta-Kk", strings.Repeat("v", 64<<10-1)}, false},
		{"repeated header", []string{"X-Dynamo-Meta-K", strings.Repeat("v", 40<<10), "X-Dynamo-Meta-K", strings.Repeat("v", 40<<10)}, false},
		{"others are free", append(entries(64), "X-Other", strings.Repeat("v", 100<<10), "X-Dynamo-Meta-Authorization", "x"), true},
	}
	for _, tt := range tests {
		e := &NvExt{}
		got, err := ApplyMeta(e, pairs(tt.kv...))
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrMetaTooLarge) {
			t.Errorf("%s: %v, want ok %t", tt.name, err, tt.ok)
		}
		if got != e || (e.Meta != nil) != tt.ok {
			t.Errorf("%s: Meta of %d entries, want some %t", tt.name, len(e.Meta), tt.ok)
		}
	}
}

func TestApplyMetaAllocs(t *testing.T) {
	all := pairs("Content-Type", "application/json", "User-Agent", "test", "X-Dynamo-Request-Priority", "1")
	if n := testing.AllocsPerRun(100, func() {
		if e, err := ApplyMeta(nil, all); e != nil || err != nil {
			t.Fatal("something out of nothing")
		}
	}); n > 2 {
		t.Errorf("%v allocations for a request without metadata, want at most 2", n)
	}
}
