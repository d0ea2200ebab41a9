package sched

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Policy is the order in which requests of one tenant leave a class.
type Policy string

// The policies.
const (
	FCFS Policy = "fcfs" // first come, first served
	LCFS Policy = "lcfs" // last come, first served
	WSPT Policy = "wspt" // the least to compute first, weighed by priority
)

// Class is a class of requests that wait together.
type Class struct {
	Name string
	// Family and Bucket choose the class by the family that a request names and by
	// how much of its prompt is in no cache. A class without them is chosen by name.
	Family, Bucket string
	Policy         Policy // empty means FCFS
	Quantum        int    // its share against other classes, in tokens; at least 1
	// BusyTokens and BusyFrac say when a rank is busy for the class: it has more
	// prompt tokens to compute than that, or than that many times its batch. Nil is
	// not checked; with both nil the class never waits.
	BusyTokens *int
	BusyFrac   *float64
	// The limits of what waits, for each worker there is; nil means none.
	MaxRequests, MaxPromptTokens, MaxCachedTokens *int
}

// unknownBatch is how many tokens a rank takes into a batch that does not say: so
// many that a share of it is never reached by chance.
const unknownBatch = 10_000_000

// Busy reports whether a rank with so many prompt tokens to compute is busy for a
// class. maxBatched is how many tokens it takes into a batch, 0 if that is not
// known.
func (c *Class) Busy(prefillTokens, maxBatched int) bool {
	if c.BusyTokens != nil && prefillTokens > *c.BusyTokens {
		return true
	}
	if c.BusyFrac == nil {
		return false
	}
	if maxBatched <= 0 {
		maxBatched = unknownBatch
	}
	return float64(prefillTokens) > *c.BusyFrac*float64(maxBatched)
}

// Waits reports whether requests of the class can wait at all.
func (c *Class) Waits() bool { return c.BusyTokens != nil || c.BusyFrac != nil }

// Bucket is a range of prompt lengths, by what is in no cache, up to the next.
type Bucket struct {
	MinTokens int
	Name      string
}

// QueueConfig says how requests wait.
type QueueConfig struct {
	// Classes are the classes; none means one, named "default", with quantum 1 that
	// never waits.
	Classes []Class
	// DefaultFamily is the family of requests that name none, or one that is unknown.
	// Where no class has a family it is the name of a class, and may be left out if
	// there is one alone, or one named "default".
	DefaultFamily string
	// Buckets begin with one from 0 tokens and go up. Every family has one class for
	// each.
	Buckets []Bucket
	// MaxJump bounds the head start of a request; 0 means 60 s.
	MaxJump time.Duration
}

const (
	defaultClass   = "default"
	defaultMaxJump = time.Minute
	// maxQuantum is more than any request costs, and small enough for sums.
	maxQuantum = 1 << 30
)

// QueueConfigError is what is wrong with one setting of a [QueueConfig]. Settings go
// by their keys in the configuration of the router's queue.
type QueueConfigError struct {
	Field   string // such as policy_classes[1].quantum
	Problem string // what was expected
}

func (e *QueueConfigError) Error() string { return e.Field + ": " + e.Problem }

// classifier finds the class of a request.
type classifier struct {
	// families has, by the name of a family, the classes of its buckets, and by that
	// of a class without family the class alone.
	families map[string][]int
	floors   []int // where buckets begin, up from 0
	fallback []int // of the default family
}

func (c *classifier) class(name string, uncached int) int {
	classes, ok := c.families[name]
	if !ok {
		classes = c.fallback
	}
	i := len(classes) - 1
	for i > 0 && uncached < c.floors[i] {
		i--
	}
	return classes[i]
}

// configCheck makes sense of a configuration and collects what makes none.
type configCheck struct {
	at   string // before each key
	errs []*QueueConfigError
}

func (k *configCheck) fail(key, format string, args ...any) {
	k.errs = append(k.errs, &QueueConfigError{Field: k.at + key, Problem: fmt.Sprintf(format, args...)})
}

// Check returns everything that is wrong with the configuration. Each key of a
// setting, also where a problem names one, begins with at, such as "router.queue.".
func (cfg QueueConfig) Check(at string) []*QueueConfigError {
	k := configCheck{at: at}
	k.queue(cfg)
	return k.errs
}

// resolve returns the classes with their defaults filled in, and how to find them.
// The error joins a *QueueConfigError for each setting at fault.
func (cfg QueueConfig) resolve() ([]Class, *classifier, error) {
	var k configCheck
	classes, find := k.queue(cfg)
	var errs []error
	for _, err := range k.errs {
		errs = append(errs, err)
	}
	return classes, find, errors.Join(errs...)
}

// queue checks everything, and returns what resolve does. Of what follows from
// another problem nothing is said.
func (k *configCheck) queue(cfg QueueConfig) ([]Class, *classifier) {
	classes := slices.Clone(cfg.Classes)
	if len(classes) == 0 {
		classes = []Class{{Name: defaultClass, Quantum: 1}}
	}
	if cfg.MaxJump < 0 {
		k.fail("max_head_start", "expected at least 0s, got %v", cfg.MaxJump)
	}
	k.buckets(cfg.Buckets)
	for i := range classes {
		k.class(classes, i)
	}
	find := &classifier{}
	for _, b := range cfg.Buckets {
		find.floors = append(find.floors, b.MinTokens)
	}
	families := k.families(classes, cfg.Buckets)
	named := k.named(classes, families)
	// The family that a class with a bucket alone lacks could be any.
	if !slices.ContainsFunc(classes, func(c Class) bool { return c.Family == "" && c.Bucket != "" }) {
		if len(cfg.Buckets) > 0 && len(families) == 0 {
			k.fail("uncached_isl_buckets", "expected with a policy_family in %spolicy_classes only", k.at)
		}
		find.fallback = k.fallback(cfg.DefaultFamily, families, named)
	}
	find.families = families
	maps.Copy(find.families, named)
	return classes, find
}

// buckets checks the buckets.
func (k *configCheck) buckets(buckets []Bucket) {
	for i, b := range buckets {
		key := fmt.Sprintf("uncached_isl_buckets[%d]", i)
		switch {
		case i == 0 && b.MinTokens != 0:
			k.fail(key+".min_tokens", "expected 0, where the first bucket begins, got %d", b.MinTokens)
		case i > 0 && b.MinTokens <= buckets[i-1].MinTokens:
			k.fail(key+".min_tokens", "expected more than %d, where the bucket before begins, got %d", buckets[i-1].MinTokens, b.MinTokens)
		}
		if b.Name == "" {
			k.fail(key+".bucket", "expected a name to tell the bucket by")
		} else if other := bucketNamed(buckets, b.Name); other < i {
			k.fail(key+".bucket", "expected a name of its own, but %suncached_isl_buckets[%d] is called %q too", k.at, other, b.Name)
		}
	}
}

// bucketNamed returns the index of the first bucket of that name, -1 if there is none.
func bucketNamed(buckets []Bucket, name string) int {
	return slices.IndexFunc(buckets, func(b Bucket) bool { return b.Name == name })
}

// class checks what the class at i says about itself, and fills in defaults.
func (k *configCheck) class(classes []Class, i int) {
	c, key := &classes[i], fmt.Sprintf("policy_classes[%d]", i)
	if c.Name == "" {
		k.fail(key+".name", "expected a name to tell the class by")
	} else if other := slices.IndexFunc(classes, func(o Class) bool { return o.Name == c.Name }); other < i {
		k.fail(key+".name", "expected a name of its own, but %spolicy_classes[%d] is called %q too", k.at, other, c.Name)
	}
	switch {
	case c.Family != "" && c.Bucket == "":
		k.fail(key+".cache_bucket", "expected one, because policy_family is %q", c.Family)
	case c.Family == "" && c.Bucket != "":
		k.fail(key+".policy_family", "expected one, because cache_bucket is %q", c.Bucket)
	}
	switch c.Policy {
	case "":
		c.Policy = FCFS
	case FCFS, LCFS, WSPT:
	default:
		k.fail(key+".queue_policy", "expected fcfs, lcfs or wspt, got %q", c.Policy)
	}
	if c.Quantum < 1 || c.Quantum > maxQuantum {
		k.fail(key+".quantum", "expected a number from 1 to %d, got %d", maxQuantum, c.Quantum)
	}
	for _, v := range [...]struct {
		name  string
		value *int
	}{
		{"prefill_busy_threshold", c.BusyTokens},
		{"request_queue_limit_per_worker", c.MaxRequests},
		{"raw_isl_token_queue_limit_per_worker", c.MaxPromptTokens},
		{"cached_token_queue_limit_per_worker", c.MaxCachedTokens},
	} {
		if v.value != nil && *v.value < 0 {
			k.fail(key+"."+v.name, "expected at least 0, got %d", *v.value)
		}
	}
	if f := c.BusyFrac; f != nil && !(*f >= 0 && *f <= math.MaxFloat64) {
		k.fail(key+".prefill_busy_threshold_frac", "expected a number of at least 0, got %v", *f)
	}
}

// families returns the classes of each family, by bucket. It has one for each.
func (k *configCheck) families(classes []Class, buckets []Bucket) map[string][]int {
	families := make(map[string][]int)
	garbled := make(map[string]bool) // families with a class for a bucket that is none
	for i, c := range classes {
		if c.Family == "" {
			continue
		}
		family, ok := families[c.Family]
		if !ok {
			family = slices.Repeat([]int{-1}, len(buckets))
			families[c.Family] = family
		}
		if c.Bucket == "" { // which is reported already
			garbled[c.Family] = true
			continue
		}
		key, b := fmt.Sprintf("policy_classes[%d].cache_bucket", i), bucketNamed(buckets, c.Bucket)
		switch {
		case b < 0:
			k.fail(key, "expected a bucket of %suncached_isl_buckets, got %q", k.at, c.Bucket)
			garbled[c.Family] = true
		case family[b] >= 0:
			k.fail(key, "expected one class for family %q and bucket %q, but %spolicy_classes[%d] is for them too", c.Family, c.Bucket, k.at, family[b])
		default:
			family[b] = i
		}
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if garbled[name] {
			continue
		}
		var missing []string
		for b, i := range families[name] {
			if bucket := buckets[b].Name; i < 0 && bucket != "" && bucketNamed(buckets, bucket) == b {
				missing = append(missing, bucket)
			}
		}
		if missing != nil {
			k.fail("policy_classes", "expected a class of family %s for each bucket, found none for %s", name, strings.Join(missing, ", "))
		}
	}
	return families
}

// named returns the classes without a family by their names.
func (k *configCheck) named(classes []Class, families map[string][]int) map[string][]int {
	named := make(map[string][]int)
	for i, c := range classes {
		if c.Family != "" || c.Name == "" {
			continue
		}
		if _, ok := families[c.Name]; ok {
			k.fail(fmt.Sprintf("policy_classes[%d].name", i), "expected another name than a family's, got %q", c.Name)
			continue
		}
		named[c.Name] = []int{i}
	}
	return named
}

// fallback returns the classes for requests that name no family or class, or none
// that there is.
func (k *configCheck) fallback(name string, families, named map[string][]int) []int {
	choices, kind := families, "a family"
	if len(families) == 0 {
		choices, kind = named, "a class"
	}
	names := slices.Sorted(maps.Keys(choices))
	switch classes, ok := choices[name]; {
	case ok:
		return classes
	case len(names) == 0: // every class lacks a name, which is reported already
	case name != "":
		k.fail("default_policy_family", "expected %s of %spolicy_classes, such as %s, got %q", kind, k.at, names[0], name)
	case len(families) == 0 && named[defaultClass] != nil:
		return named[defaultClass]
	case len(families) == 0 && len(names) == 1:
		return named[names[0]]
	default:
		k.fail("default_policy_family", "expected %s of %spolicy_classes, such as %s", kind, k.at, names[0])
	}
	return nil
}
