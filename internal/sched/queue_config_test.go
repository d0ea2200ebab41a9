package sched

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustQueue(t testing.TB, cfg QueueConfig) *Queue {
	t.Helper()
	q, err := NewQueue(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// matrix is two families by two buckets, and a class that is named.
func matrix() QueueConfig {
	return QueueConfig{
		DefaultFamily: "standard",
		Buckets:       []Bucket{{0, "short"}, {4096, "long"}},
		Classes: []Class{
			{Name: "latency-long", Family: "latency", Bucket: "long", Quantum: 2000},
			{Name: "standard-short", Family: "standard", Bucket: "short", Quantum: 1000, Policy: WSPT},
			{Name: "latency-short", Family: "latency", Bucket: "short", Quantum: 2000},
			{Name: "batch", Quantum: 100, Policy: LCFS},
			{Name: "standard-long", Family: "standard", Bucket: "long", Quantum: 1000},
		},
	}
}

func TestClassify(t *testing.T) {
	explicit := QueueConfig{DefaultFamily: "b", Classes: []Class{{Name: "a", Quantum: 1}, {Name: "b", Quantum: 1}}}
	named := QueueConfig{Classes: []Class{{Name: "a", Quantum: 1}, {Name: "default", Quantum: 1}}}
	alone := QueueConfig{Buckets: []Bucket{{0, "all"}}, Classes: []Class{{Name: "a", Family: "f", Bucket: "all", Quantum: 1}}}
	for _, tc := range []struct {
		name     string
		cfg      QueueConfig
		class    string
		uncached int
		want     string
	}{
		{"family, first bucket", matrix(), "latency", 0, "latency-short"},
		{"family, below the floor", matrix(), "latency", 4095, "latency-short"},
		{"family, at the floor", matrix(), "latency", 4096, "latency-long"},
		{"family, far above", matrix(), "latency", math.MaxInt, "latency-long"},
		{"less than nothing", matrix(), "latency", -1, "latency-short"},
		{"explicit class", matrix(), "batch", 9999, "batch"},
		{"nothing named", matrix(), "", 100, "standard-short"},
		{"unknown name", matrix(), "gold", 5000, "standard-long"},
		{"class of a family", matrix(), "latency-long", 5000, "standard-long"},
		{"name in other case", matrix(), "Latency", 1, "standard-short"},
		{"explicit classes only", explicit, "a", 1, "a"},
		{"explicit default", explicit, "c", 1, "b"},
		{"default by its name", named, "", 1, "default"},
		{"one family", alone, "", 1, "a"},
		{"no config", QueueConfig{}, "anything", 1, "default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := mustQueue(t, tc.cfg)
			if got := q.Classes()[q.Classify(tc.class, tc.uncached)].Name; got != tc.want {
				t.Errorf("class %q with %d uncached tokens: %s, want %s", tc.class, tc.uncached, got, tc.want)
			}
		})
	}
}

func TestQueueDefaults(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	want := []Class{{Name: "default", Policy: FCFS, Quantum: 1}}
	if diff := cmp.Diff(want, q.Classes()); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if q.Classes()[0].Waits() {
		t.Error("a class without thresholds waits")
	}
	if q.maxJump != 60 {
		t.Errorf("head start at most %v s, want 60", q.maxJump)
	}
}

// TestQueueConfigIsNotChanged is about defaults, which are filled in in a copy.
func TestQueueConfigIsNotChanged(t *testing.T) {
	cfg := QueueConfig{Classes: []Class{{Name: "a", Quantum: 1}}}
	mustQueue(t, cfg)
	if cfg.Classes[0].Policy != "" {
		t.Errorf("policy became %q", cfg.Classes[0].Policy)
	}
}

func TestQueueConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*QueueConfig)
		want   []string
	}{
		{"sound", func(*QueueConfig) {}, nil},
		{"everything set", func(c *QueueConfig) {
			c.Classes[0].BusyTokens, c.Classes[0].BusyFrac = new(0), new(0.0)
			c.Classes[0].MaxRequests, c.Classes[0].MaxPromptTokens, c.Classes[0].MaxCachedTokens = new(0), new(1), new(2)
			c.MaxJump = time.Hour
		}, nil},
		{"quantum", func(c *QueueConfig) { c.Classes[1].Quantum, c.Classes[2].Quantum = 0, -3 }, []string{
			"queue.classes[1].quantum: expected more than 0, got 0",
			"queue.classes[2].quantum: expected more than 0, got -3",
		}},
		{"quantum too large", func(c *QueueConfig) { c.Classes[1].Quantum = maxQuantum + 1 }, []string{
			"queue.classes[1].quantum: expected at most 1073741824, got 1073741825"}},
		{"no name", func(c *QueueConfig) { c.Classes[3].Name = "" }, []string{
			"queue.classes[3].name: expected a name"}},
		{"name twice", func(c *QueueConfig) { c.Classes[3].Name = "latency-long" }, []string{
			`queue.classes[3].name: expected a name of its own, but queue.classes[0] is "latency-long" too`}},
		{"name of a family", func(c *QueueConfig) { c.Classes[3].Name = "latency" }, []string{
			`queue.classes[3].name: expected another name than that of a family, got "latency"`}},
		{"policy", func(c *QueueConfig) { c.Classes[0].Policy = "sjf" }, []string{
			`queue.classes[0].policy: expected fcfs, lcfs or wspt, got "sjf"`}},
		{"family without bucket", func(c *QueueConfig) { c.Classes[3].Family = "standard" }, []string{
			"queue.classes[3].bucket: expected a bucket, because there is a family"}},
		{"bucket without family", func(c *QueueConfig) { c.Classes[3].Bucket = "short" }, []string{
			"queue.classes[3].family: expected a family, because there is a bucket"}},
		{"unknown bucket", func(c *QueueConfig) { c.Classes[0].Bucket = "huge" }, []string{
			`queue.classes[0].bucket: expected the name of one of queue.buckets, got "huge"`,
			`queue.classes: expected a class for family "latency" and bucket "long"`}},
		{"no class for a bucket", func(c *QueueConfig) { c.Classes = c.Classes[:4] }, []string{
			`queue.classes: expected a class for family "standard" and bucket "long"`}},
		{"two classes for a bucket", func(c *QueueConfig) { c.Classes[3].Family, c.Classes[3].Bucket = "latency", "long" }, []string{
			`queue.classes[3].bucket: expected one class for family "latency" and bucket "long", but queue.classes[0] is for them too`}},
		{"first bucket", func(c *QueueConfig) { c.Buckets[0].MinTokens = 1 }, []string{
			"queue.buckets[0].min_tokens: expected 0 for the first bucket, got 1"}},
		{"buckets not rising", func(c *QueueConfig) { c.Buckets[1].MinTokens = 0 }, []string{
			"queue.buckets[1].min_tokens: expected more than the 0 of the bucket before, got 0"}},
		{"bucket names", func(c *QueueConfig) {
			c.Buckets = []Bucket{{0, "short"}, {10, ""}, {20, "short"}}
		}, []string{
			"queue.buckets[1].name: expected a name",
			`queue.buckets[2].name: expected a name of its own, but queue.buckets[0] is "short" too`}},
		{"buckets for nobody", func(c *QueueConfig) { c.Classes = []Class{{Name: "a", Quantum: 1}} }, []string{
			"queue.buckets: expected with classes that have a family only, but there are none"}},
		{"unknown default", func(c *QueueConfig) { c.DefaultFamily = "gold" }, []string{
			`queue.default_family: expected a family, or a class without one, got "gold"`}},
		{"no default", func(c *QueueConfig) { c.DefaultFamily = "" }, []string{
			`queue.default_family: expected the family of requests that name none, because there are 3 and none is named "default"`}},
		{"thresholds", func(c *QueueConfig) {
			c.Classes[0].BusyTokens, c.Classes[0].BusyFrac = new(-1), new(-0.5)
			c.Classes[1].BusyFrac, c.Classes[2].BusyFrac = new(math.NaN()), new(math.Inf(1))
		}, []string{
			"queue.classes[0].busy_frac: expected a number of at least 0, got -0.5",
			"queue.classes[0].busy_tokens: expected at least 0, got -1",
			"queue.classes[1].busy_frac: expected a number of at least 0, got NaN",
			"queue.classes[2].busy_frac: expected a number of at least 0, got +Inf"}},
		{"limits", func(c *QueueConfig) {
			c.Classes[3].MaxRequests, c.Classes[3].MaxPromptTokens, c.Classes[3].MaxCachedTokens = new(-1), new(-2), new(-3)
		}, []string{
			"queue.classes[3].max_requests: expected at least 0, got -1",
			"queue.classes[3].max_prompt_tokens: expected at least 0, got -2",
			"queue.classes[3].max_cached_tokens: expected at least 0, got -3"}},
		{"head start", func(c *QueueConfig) { c.MaxJump = -time.Second }, []string{
			"queue.max_jump: expected at least 0, got -1s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := matrix()
			tc.change(&cfg)
			_, err := NewQueue(cfg)
			var got []string
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, err := range joined.Unwrap() {
					var field *QueueConfigError
					if !errors.As(err, &field) {
						t.Fatalf("%v is not a *QueueConfigError", err)
					}
					got = append(got, field.Error())
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestT9Busy also has the threshold in tokens, and both.
func TestT9Busy(t *testing.T) {
	for i, tc := range []struct {
		abs        *int
		frac       *float64
		maxBatched int
		tokens     int
		want       bool
	}{
		{nil, new(0.5), 8192, 4096, false},
		{nil, new(0.5), 8192, 4097, true},
		{nil, new(0.0), 8192, 0, false},
		{nil, new(0.0), 8192, 1, true},
		{nil, new(4.0), 0, 40_000_000, false},
		{nil, new(4.0), 0, 40_000_001, true},
		{new(100), nil, 8192, 100, false},
		{new(100), nil, 8192, 101, true},
		{new(100), new(0.5), 8192, 101, true},
		{new(9000), new(0.5), 8192, 4097, true},
		{new(9000), new(0.5), 8192, 4096, false},
		{nil, nil, 8192, math.MaxInt, false},
	} {
		c := Class{BusyTokens: tc.abs, BusyFrac: tc.frac}
		if got := c.Busy(tc.tokens, tc.maxBatched); got != tc.want {
			t.Errorf("row %d: %d tokens, batch %d: busy %t, want %t", i, tc.tokens, tc.maxBatched, got, tc.want)
		}
		if got, want := c.Waits(), tc.abs != nil || tc.frac != nil; got != want {
			t.Errorf("row %d: waits %t, want %t", i, got, want)
		}
	}
}
