package simserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind names something that goes wrong on demand.
type FaultKind string

// The faults of requests for text. After counts the events of the answer that are
// still sent; what is not streamed breaks in the middle of its body, unless After is 0.
const (
	// FaultKill closes the connection before the first byte.
	FaultKill FaultKind = "kill"
	// FaultStatus answers with a status, 500 for example.
	FaultStatus FaultKind = "status"
	// FaultReset resets the connection.
	FaultReset FaultKind = "reset"
	// FaultHalfClose ends the server's half of the connection and keeps it open.
	FaultHalfClose FaultKind = "half-close"
	// FaultHang keeps the connection open and sends nothing more.
	FaultHang FaultKind = "hang"
	// FaultError sends an error in place of the rest, as the engine would.
	FaultError FaultKind = "error"
	// FaultGarble sends an event that is cut off in its middle, and then the others.
	FaultGarble FaultKind = "garble"
	// FaultContext refuses a request because its prompt is too long.
	FaultContext FaultKind = "context-length"
	// FaultRestart has the engine end as if it had died and begin anew.
	FaultRestart FaultKind = "restart"
)

// The faults of the server as a whole.
const (
	// FaultRefuse refuses connections for a while; it needs [Server.Listen].
	FaultRefuse FaultKind = "refuse"
	// FaultLoading answers everything with 503 for a while.
	FaultLoading FaultKind = "loading"
	// FaultUnhealthy fails the health routes.
	FaultUnhealthy FaultKind = "unhealthy"
	// FaultSlowHealth delays the answers of the health routes.
	FaultSlowHealth FaultKind = "slow-health"
	// FaultNoRoute makes a route unknown.
	FaultNoRoute FaultKind = "no-route"
	// FaultBlockSize states a block size that is not the cache's, twice as large
	// unless said.
	FaultBlockSize FaultKind = "wrong-block-size"
	// FaultNoCached leaves the number of cached tokens out of the usage.
	FaultNoCached FaultKind = "no-cached-tokens"
	// FaultNullCached leaves it out only where nothing was cached.
	FaultNullCached FaultKind = "null-cached-tokens"
)

// The faults of the events that are published about the KV cache.
const (
	// FaultDropEvents loses a message now and then.
	FaultDropEvents FaultKind = "drop-events"
	// FaultNoReplay leaves requests for old messages unanswered.
	FaultNoReplay FaultKind = "no-replay"
	// FaultReplayTruncated forgets all but the latest messages.
	FaultReplayTruncated FaultKind = "replay-truncated"
	// FaultDuplicateStores tells of each block stored twice.
	FaultDuplicateStores FaultKind = "duplicate-stores"
	// FaultGroupEvents tells of blocks of another cache group in between.
	FaultGroupEvents FaultKind = "group-events"
	// FaultBytesHash spells hashes as bytes.
	FaultBytesHash FaultKind = "bytes-hash"
)

// Fault is something that goes wrong on demand, in a way that depends on nothing but
// the number of requests or messages before. Which fields count depends on the kind;
// [ParseFault] fills in those that may be left out.
type Fault struct {
	Kind FaultKind
	// After is how many events of an answer are sent before; for
	// FaultReplayTruncated, how many messages are kept.
	After int
	// Every is how often it happens: 3 for the third request and the sixth.
	Every int
	// Times is how often it happens at all, 0 for no end.
	Times int
	// Status is that of FaultStatus, Size the block size of FaultBlockSize or 0.
	Status, Size int
	// For is how long it lasts, or delays.
	For time.Duration
	// Path is that of FaultNoRoute.
	Path string
}

// faultArg is an argument of a fault.
type faultArg uint8

const (
	argAfter faultArg = iota
	argEvery
	argTimes
	argStatus
	argSize
	argFor
	argPath
)

// faultRule says what a kind of fault is told.
type faultRule struct {
	kind  FaultKind
	usage string // of its arguments
	does  string
	need  int // how many of them must be there
	args  []faultArg
	fault Fault // what it is when nothing more is said
}

var faultRules = []faultRule{
	{FaultKill, "[:EVERY]", "close the connection before the first byte", 0, []faultArg{argEvery}, Fault{Every: 1}},
	{FaultStatus, ":CODE[:TIMES]", "answer with an error", 1, []faultArg{argStatus, argTimes}, Fault{Every: 1}},
	{FaultReset, "[:AFTER[:EVERY]]", "reset the connection in the middle of an answer", 0, []faultArg{argAfter, argEvery}, Fault{After: 1, Every: 1}},
	{FaultHalfClose, "[:AFTER[:EVERY]]", "end it there, but only in one direction", 0, []faultArg{argAfter, argEvery}, Fault{After: 1, Every: 1}},
	{FaultHang, "[:AFTER[:EVERY]]", "send nothing more there", 0, []faultArg{argAfter, argEvery}, Fault{After: 1, Every: 1}},
	{FaultError, "[:AFTER[:EVERY]]", "send an error there, as the engine would", 0, []faultArg{argAfter, argEvery}, Fault{After: 1, Every: 1}},
	{FaultGarble, "[:AFTER[:EVERY]]", "cut an event short there, and go on", 0, []faultArg{argAfter, argEvery}, Fault{After: 1, Every: 1}},
	{FaultContext, "[:EVERY]", "refuse the prompt as too long", 0, []faultArg{argEvery}, Fault{Every: 1}},
	{FaultRestart, "[:EVERY]", "begin anew with empty caches: at once, or when a request comes", 0, []faultArg{argEvery}, Fault{}},
	{FaultRefuse, ":TIME", "refuse connections", 1, []faultArg{argFor}, Fault{}},
	{FaultLoading, ":TIME", "answer 503 to everything", 1, []faultArg{argFor}, Fault{}},
	{FaultUnhealthy, "", "fail health checks", 0, nil, Fault{}},
	{FaultSlowHealth, ":TIME", "be slow to answer them", 1, []faultArg{argFor}, Fault{}},
	{FaultNoRoute, ":PATH", "know no such route", 1, []faultArg{argPath}, Fault{}},
	{FaultBlockSize, "[:TOKENS]", "state a block size that is not true", 0, []faultArg{argSize}, Fault{}},
	{FaultNoCached, "", "tell nobody how much of a prompt was cached", 0, nil, Fault{}},
	{FaultNullCached, "", "the same where nothing was", 0, nil, Fault{}},
	{FaultDropEvents, "[:EVERY]", "lose KV events", 0, []faultArg{argEvery}, Fault{Every: 2}},
	{FaultNoReplay, "", "leave requests for lost ones unanswered", 0, nil, Fault{}},
	{FaultReplayTruncated, "[:KEEP]", "have only the latest of them", 0, []faultArg{argAfter}, Fault{After: 1}},
	{FaultDuplicateStores, "", "tell of each block stored twice", 0, nil, Fault{}},
	{FaultGroupEvents, "", "tell of blocks of another cache group as well", 0, nil, Fault{}},
	{FaultBytesHash, "", "write hashes as bytes", 0, nil, Fault{}},
}

// FaultUsage returns how each fault is written, such as "reset[:AFTER[:EVERY]]".
func FaultUsage() []string {
	out := make([]string, len(faultRules))
	for i, r := range faultRules {
		out[i] = string(r.kind) + r.usage
	}
	return out
}

// FaultHelp returns a line for each fault: how it is written, and what it does.
func FaultHelp() []string {
	out := FaultUsage()
	width := 0
	for _, usage := range out {
		width = max(width, len(usage))
	}
	for i, usage := range out {
		out[i] = fmt.Sprintf("%-*s  %s", width, usage, faultRules[i].does)
	}
	return out
}

func faultRuleOf(kind FaultKind) *faultRule {
	i := slices.IndexFunc(faultRules, func(r faultRule) bool { return r.kind == kind })
	if i < 0 {
		return nil
	}
	return &faultRules[i]
}

// ParseFault reads a fault as [FaultUsage] writes it: its kind and its arguments with
// colons between.
func ParseFault(text string) (Fault, error) {
	parts := strings.Split(text, ":")
	rule := faultRuleOf(FaultKind(parts[0]))
	if rule == nil {
		return Fault{}, fmt.Errorf("fault %s: expected one of %s", text, strings.Join(FaultUsage(), ", "))
	}
	args := parts[1:]
	if len(args) < rule.need || len(args) > len(rule.args) {
		return Fault{}, fmt.Errorf("fault %s: expected %s%s", text, rule.kind, rule.usage)
	}
	f := rule.fault
	f.Kind = rule.kind
	for i, arg := range args {
		if err := f.set(rule.args[i], arg); err != nil {
			return Fault{}, fmt.Errorf("fault %s: %w", text, err)
		}
	}
	return f, f.check()
}

// set takes over one argument.
func (f *Fault) set(arg faultArg, text string) error {
	number := func(to *int, what string, least int) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > 1<<30 {
			return fmt.Errorf("expected %s of at least %d, got %q", what, least, text)
		}
		*to = n
		return nil
	}
	switch arg {
	case argAfter:
		return number(&f.After, "a number", 0)
	case argEvery:
		return number(&f.Every, "a number", 1)
	case argTimes:
		return number(&f.Times, "a number", 1)
	case argStatus:
		return number(&f.Status, "a status", 400)
	case argSize:
		return number(&f.Size, "a number of tokens", 1)
	case argFor:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("expected a time such as 2s, got %q", text)
		}
		f.For = d
	case argPath:
		f.Path = text
	}
	return nil
}

// check refuses a fault that makes no sense.
func (f *Fault) check() error {
	rule := faultRuleOf(f.Kind)
	if rule == nil {
		return fmt.Errorf("fault: expected a kind of fault, got %q", f.Kind)
	}
	for _, arg := range rule.args {
		var bad string
		switch arg {
		case argEvery:
			if f.Every < rule.fault.Every && f.Every < 1 {
				bad = fmt.Sprintf("every: expected at least 1, got %d", f.Every)
			}
		case argAfter:
			if f.After < 0 {
				bad = fmt.Sprintf("after: expected at least 0, got %d", f.After)
			}
		case argStatus:
			if f.Status < 400 || f.Status > 599 {
				bad = fmt.Sprintf("expected a status from 400 to 599, got %d", f.Status)
			}
		case argFor:
			if f.For <= 0 {
				bad = fmt.Sprintf("expected a time above 0, got %v", f.For)
			}
		case argPath:
			if !strings.HasPrefix(f.Path, "/") {
				bad = fmt.Sprintf("expected a path such as /metrics, got %q", f.Path)
			}
		}
		if bad != "" {
			return fmt.Errorf("fault %s: %s", f.Kind, bad)
		}
	}
	return nil
}

// String writes the fault as [ParseFault] reads it.
func (f Fault) String() string {
	rule := faultRuleOf(f.Kind)
	if rule == nil {
		return string(f.Kind)
	}
	text, last := string(f.Kind), len(f.Kind)
	for i, arg := range rule.args {
		var value string
		def := false
		switch arg {
		case argAfter:
			value, def = strconv.Itoa(f.After), f.After == rule.fault.After
		case argEvery:
			value, def = strconv.Itoa(f.Every), f.Every == rule.fault.Every
		case argTimes:
			value, def = strconv.Itoa(f.Times), f.Times == 0
		case argStatus:
			value = strconv.Itoa(f.Status)
		case argSize:
			value, def = strconv.Itoa(f.Size), f.Size == 0
		case argFor:
			value = f.For.String()
			if minutes, ok := strings.CutSuffix(value, "m0s"); ok {
				value = minutes + "m"
			}
			if hours, ok := strings.CutSuffix(value, "h0m"); ok {
				value = hours + "h"
			}
		case argPath:
			value = f.Path
		}
		text += ":" + value
		if !def || i < rule.need {
			last = len(text)
		}
	}
	return text[:last]
}
