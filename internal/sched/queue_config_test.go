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
	alone := QueueConfig{Classes: []Class{{Name: "a", Quantum: 1}}}
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
		{"one class", alone, "", 1, "a"},
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
		{"quantum", func(c *QueueConfig) {
			c.Classes[1].Quantum, c.Classes[2].Quantum, c.Classes[3].Quantum = 0, -3, maxQuantum+1
			c.Classes[4].Quantum = maxQuantum
		}, []string{
			"policy_classes[1].quantum: expected a number from 1 to 1073741824, got 0",
			"policy_classes[2].quantum: expected a number from 1 to 1073741824, got -3",
			"policy_classes[3].quantum: expected a number from 1 to 1073741824, got 1073741825"}},
		{"no name", func(c *QueueConfig) { c.Classes[3].Name = "" }, []string{
			"policy_classes[3].name: expected a name to tell the class by"}},
		{"no name at all", func(c *QueueConfig) { *c = QueueConfig{Classes: []Class{{Quantum: 1}}} }, []string{
			"policy_classes[0].name: expected a name to tell the class by"}},
		{"name twice", func(c *QueueConfig) { c.Classes = append(c.Classes, Class{Name: "batch", Quantum: 1}) }, []string{
			`policy_classes[5].name: expected a name of its own, but policy_classes[3] is called "batch" too`}},
		{"name of a family", func(c *QueueConfig) { c.Classes[3].Name = "latency" }, []string{
			`policy_classes[3].name: expected another name than a family's, got "latency"`}},
		{"policy", func(c *QueueConfig) { c.Classes[0].Policy = "sjf" }, []string{
			`policy_classes[0].queue_policy: expected fcfs, lcfs or wspt, got "sjf"`}},
		{"family without bucket", func(c *QueueConfig) { c.Classes[4].Bucket = "" }, []string{
			`policy_classes[4].cache_bucket: expected one, because policy_family is "standard"`}},
		{"bucket without family", func(c *QueueConfig) { c.Classes[3].Bucket = "short" }, []string{
			`policy_classes[3].policy_family: expected one, because cache_bucket is "short"`}},
		{"buckets without families", func(c *QueueConfig) {
			c.Classes = []Class{{Name: "a", Bucket: "short", Quantum: 1}, {Name: "b", Quantum: 1}}
		}, []string{
			`policy_classes[0].policy_family: expected one, because cache_bucket is "short"`}},
		{"unknown bucket", func(c *QueueConfig) { c.Classes[0].Bucket = "huge" }, []string{
			`policy_classes[0].cache_bucket: expected a bucket of uncached_isl_buckets, got "huge"`}},
		{"no class for some buckets", func(c *QueueConfig) {
			c.Buckets = append(c.Buckets, Bucket{9999, "huge"})
			c.Classes = c.Classes[:4]
		}, []string{
			"policy_classes: expected a class of family latency for each bucket, found none for huge",
			"policy_classes: expected a class of family standard for each bucket, found none for long, huge"}},
		{"two classes for a bucket", func(c *QueueConfig) { c.Classes[3].Family, c.Classes[3].Bucket = "latency", "long" }, []string{
			`policy_classes[3].cache_bucket: expected one class for family "latency" and bucket "long", but policy_classes[0] is for them too`}},
		{"first bucket", func(c *QueueConfig) { c.Buckets[0].MinTokens = 1 }, []string{
			"uncached_isl_buckets[0].min_tokens: expected 0, where the first bucket begins, got 1"}},
		{"buckets not rising", func(c *QueueConfig) { c.Buckets[1].MinTokens = 0 }, []string{
			"uncached_isl_buckets[1].min_tokens: expected more than 0, where the bucket before begins, got 0"}},
		{"bucket names", func(c *QueueConfig) { c.Buckets = append(c.Buckets, Bucket{5000, ""}, Bucket{6000, "short"}) }, []string{
			"uncached_isl_buckets[2].bucket: expected a name to tell the bucket by",
			`uncached_isl_buckets[3].bucket: expected a name of its own, but uncached_isl_buckets[0] is called "short" too`}},
		{"buckets for nobody", func(c *QueueConfig) {
			c.Classes, c.DefaultFamily = []Class{{Name: "a", Quantum: 1}}, ""
		}, []string{
			"uncached_isl_buckets: expected with a policy_family in policy_classes only"}},
		{"no default", func(c *QueueConfig) { c.DefaultFamily = "" }, []string{
			"default_policy_family: expected a family of policy_classes, such as latency"}},
		{"no default but one family", func(c *QueueConfig) {
			*c = QueueConfig{Buckets: []Bucket{{0, "all"}}, Classes: []Class{{Name: "a", Family: "f", Bucket: "all", Quantum: 1}}}
		}, []string{
			"default_policy_family: expected a family of policy_classes, such as f"}},
		{"unknown default", func(c *QueueConfig) { c.DefaultFamily = "gold" }, []string{
			`default_policy_family: expected a family of policy_classes, such as latency, got "gold"`}},
		{"class for a default", func(c *QueueConfig) { c.DefaultFamily = "batch" }, []string{
			`default_policy_family: expected a family of policy_classes, such as latency, got "batch"`}},
		{"no default class", func(c *QueueConfig) {
			*c = QueueConfig{Classes: []Class{{Name: "b", Quantum: 1}, {Name: "a", Quantum: 1}}}
		}, []string{
			"default_policy_family: expected a class of policy_classes, such as a"}},
		{"unknown default class", func(c *QueueConfig) {
			*c = QueueConfig{Classes: []Class{{Name: "default", Quantum: 1}}, DefaultFamily: "gold"}
		}, []string{
			`default_policy_family: expected a class of policy_classes, such as default, got "gold"`}},
		{"thresholds", func(c *QueueConfig) {
			c.Classes[0].BusyTokens, c.Classes[0].BusyFrac = new(-1), new(-0.5)
			c.Classes[1].BusyFrac, c.Classes[2].BusyFrac = new(math.NaN()), new(math.Inf(1))
		}, []string{
			"policy_classes[0].prefill_busy_threshold: expected at least 0, got -1",
			"policy_classes[0].prefill_busy_threshold_frac: expected a number of at least 0, got -0.5",
			"policy_classes[1].prefill_busy_threshold_frac: expected a number of at least 0, got NaN",
			"policy_classes[2].prefill_busy_threshold_frac: expected a number of at least 0, got +Inf"}},
		{"limits", func(c *QueueConfig) {
			c.Classes[3].MaxRequests, c.Classes[3].MaxPromptTokens, c.Classes[3].MaxCachedTokens = new(-1), new(-2), new(-3)
		}, []string{
			"policy_classes[3].request_queue_limit_per_worker: expected at least 0, got -1",
			"policy_classes[3].raw_isl_token_queue_limit_per_worker: expected at least 0, got -2",
			"policy_classes[3].cached_token_queue_limit_per_worker: expected at least 0, got -3"}},
		{"head start", func(c *QueueConfig) { c.MaxJump = -time.Second }, []string{
			"max_head_start: expected at least 0s, got -1s"}},
		{"everything at once", func(c *QueueConfig) {
			c.Buckets[0].MinTokens, c.Classes[0].Bucket, c.Classes[1].Quantum, c.DefaultFamily = 5, "huge", 0, "gold"
		}, []string{
			"uncached_isl_buckets[0].min_tokens: expected 0, where the first bucket begins, got 5",
			"policy_classes[1].quantum: expected a number from 1 to 1073741824, got 0",
			`policy_classes[0].cache_bucket: expected a bucket of uncached_isl_buckets, got "huge"`,
			`default_policy_family: expected a family of policy_classes, such as latency, got "gold"`}},
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

// TestQueueConfigKeys is about where keys begin, in fields and in problems.
func TestQueueConfigKeys(t *testing.T) {
	if errs := matrix().Check("queue."); errs != nil {
		t.Errorf("a sound configuration: %v", errs)
	}
	cfg := matrix()
	cfg.DefaultFamily = ""
	cfg.Buckets = append(cfg.Buckets, Bucket{9999, "short"})
	cfg.Classes[0].Bucket = "huge"
	cfg.Classes = append(cfg.Classes, Class{Name: "batch", Family: "standard", Bucket: "long", Quantum: 1})
	want := []*QueueConfigError{
		{"queue.uncached_isl_buckets[2].bucket", `expected a name of its own, but queue.uncached_isl_buckets[0] is called "short" too`},
		{"queue.policy_classes[5].name", `expected a name of its own, but queue.policy_classes[3] is called "batch" too`},
		{"queue.policy_classes[0].cache_bucket", `expected a bucket of queue.uncached_isl_buckets, got "huge"`},
		{"queue.policy_classes[5].cache_bucket", `expected one class for family "standard" and bucket "long", but queue.policy_classes[4] is for them too`},
		{"queue.default_policy_family", "expected a family of queue.policy_classes, such as latency"},
	}
	if diff := cmp.Diff(want, cfg.Check("queue.")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
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
