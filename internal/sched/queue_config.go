package sched

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
	// DefaultFamily is the family, or the class without one, of requests that name
	// none, or one that is unknown. It may be left out if there is one alone, or one
	// named "default".
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

// QueueConfigError is what is wrong with one field of a [QueueConfig].
type QueueConfigError struct {
	Field   string // such as queue.classes[1].quantum
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
type configCheck struct{ errs []error }

func (k *configCheck) fail(field, format string, args ...any) {
	k.errs = append(k.errs, &QueueConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// resolve returns the classes with their defaults filled in, and how to find them.
// The error joins a *QueueConfigError for each field at fault. How classes fit
// together is looked at once each makes sense alone.
func (cfg QueueConfig) resolve() ([]Class, *classifier, error) {
	classes := slices.Clone(cfg.Classes)
	if len(classes) == 0 {
		classes = []Class{{Name: defaultClass, Quantum: 1}}
	}
	var k configCheck
	if cfg.MaxJump < 0 {
		k.fail("queue.max_jump", "expected at least 0, got %v", cfg.MaxJump)
	}
	k.buckets(cfg.Buckets)
	for i := range classes {
		k.class(classes, i)
	}
	if len(k.errs) > 0 {
		return nil, nil, errors.Join(k.errs...)
	}
	find := &classifier{families: make(map[string][]int)}
	for _, b := range cfg.Buckets {
		find.floors = append(find.floors, b.MinTokens)
	}
	k.families(find.families, classes, cfg.Buckets)
	if len(k.errs) == 0 {
		find.fallback = k.fallback(cfg.DefaultFamily, find.families)
	}
	return classes, find, errors.Join(k.errs...)
}

// buckets checks the buckets.
func (k *configCheck) buckets(buckets []Bucket) {
	for i, b := range buckets {
		field := fmt.Sprintf("queue.buckets[%d]", i)
		switch {
		case i == 0 && b.MinTokens != 0:
			k.fail(field+".min_tokens", "expected 0 for the first bucket, got %d", b.MinTokens)
		case i > 0 && b.MinTokens <= buckets[i-1].MinTokens:
			k.fail(field+".min_tokens", "expected more than the %d of the bucket before, got %d", buckets[i-1].MinTokens, b.MinTokens)
		}
		if b.Name == "" {
			k.fail(field+".name", "expected a name")
		} else if other := slices.IndexFunc(buckets, func(o Bucket) bool { return o.Name == b.Name }); other < i {
			k.fail(field+".name", "expected a name of its own, but queue.buckets[%d] is %q too", other, b.Name)
		}
	}
}

// class checks the fields of the class at i, and fills in defaults.
func (k *configCheck) class(classes []Class, i int) {
	c, field := &classes[i], fmt.Sprintf("queue.classes[%d]", i)
	if c.Name == "" {
		k.fail(field+".name", "expected a name")
	} else if other := slices.IndexFunc(classes, func(o Class) bool { return o.Name == c.Name }); other < i {
		k.fail(field+".name", "expected a name of its own, but queue.classes[%d] is %q too", other, c.Name)
	}
	switch {
	case c.Family != "" && c.Bucket == "":
		k.fail(field+".bucket", "expected a bucket, because there is a family")
	case c.Family == "" && c.Bucket != "":
		k.fail(field+".family", "expected a family, because there is a bucket")
	}
	switch c.Policy {
	case "":
		c.Policy = FCFS
	case FCFS, LCFS, WSPT:
	default:
		k.fail(field+".policy", "expected fcfs, lcfs or wspt, got %q", c.Policy)
	}
	if c.Quantum <= 0 {
		k.fail(field+".quantum", "expected more than 0, got %d", c.Quantum)
	} else if c.Quantum > maxQuantum {
		k.fail(field+".quantum", "expected at most %d, got %d", maxQuantum, c.Quantum)
	}
	if f := c.BusyFrac; f != nil && !(*f >= 0 && *f <= math.MaxFloat64) {
		k.fail(field+".busy_frac", "expected a number of at least 0, got %s", strconv.FormatFloat(*f, 'g', -1, 64))
	}
	for _, v := range [...]struct {
		name  string
		value *int
	}{
		{"busy_tokens", c.BusyTokens},
		{"max_requests", c.MaxRequests},
		{"max_prompt_tokens", c.MaxPromptTokens},
		{"max_cached_tokens", c.MaxCachedTokens},
	} {
		if v.value != nil && *v.value < 0 {
			k.fail(field+"."+v.name, "expected at least 0, got %d", *v.value)
		}
	}
}

// families fills in the classes of the families, and those without one by their
// names. Every family has one class for each bucket.
func (k *configCheck) families(families map[string][]int, classes []Class, buckets []Bucket) {
	var order []string
	for i, c := range classes {
		if c.Family == "" {
			continue
		}
		b := slices.IndexFunc(buckets, func(b Bucket) bool { return b.Name == c.Bucket })
		if b < 0 {
			k.fail(fmt.Sprintf("queue.classes[%d].bucket", i), "expected the name of one of queue.buckets, got %q", c.Bucket)
			continue
		}
		family, ok := families[c.Family]
		if !ok {
			family = slices.Repeat([]int{-1}, len(buckets))
			families[c.Family] = family
			order = append(order, c.Family)
		}
		if other := family[b]; other >= 0 {
			k.fail(fmt.Sprintf("queue.classes[%d].bucket", i), "expected one class for family %q and bucket %q, but queue.classes[%d] is for them too", c.Family, c.Bucket, other)
			continue
		}
		family[b] = i
	}
	if len(buckets) > 0 && len(order) == 0 && len(k.errs) == 0 {
		k.fail("queue.buckets", "expected with classes that have a family only, but there are none")
	}
	for _, name := range order {
		for b, i := range families[name] {
			if i < 0 {
				k.fail("queue.classes", "expected a class for family %q and bucket %q", name, buckets[b].Name)
			}
		}
	}
	for i, c := range classes {
		if c.Family != "" {
			continue
		}
		if _, ok := families[c.Name]; ok {
			k.fail(fmt.Sprintf("queue.classes[%d].name", i), "expected another name than that of a family, got %q", c.Name)
			continue
		}
		families[c.Name] = []int{i}
	}
}

// fallback returns the classes for requests that name no family, or none that there
// is.
func (k *configCheck) fallback(name string, families map[string][]int) []int {
	if name != "" {
		classes, ok := families[name]
		if !ok {
			k.fail("queue.default_family", "expected a family, or a class without one, got %q", name)
		}
		return classes
	}
	if classes, ok := families[defaultClass]; ok {
		return classes
	}
	if len(families) == 1 {
		for _, classes := range families {
			return classes
		}
	}
	k.fail("queue.default_family", "expected the family of requests that name none, because there are %d and none is named %q", len(families), defaultClass)
	return nil
}
