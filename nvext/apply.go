package nvext

import (
	"math"
	"strconv"
	"strings"
)

// ApplyHeaders lays a request's headers over e and returns the result: e itself,
// changed in place, or a new NvExt if e is nil and some header says something.
// If none does, a nil e stays nil and nothing is allocated.
//
// get returns a header's value, or "" where it is absent; it is called with the
// Header constants. A nil get is a request without headers.
//
// Routing headers, priorities and the tenant win over the body; an X-Dynamo-
// name wins over its aliases. Hints in older carriers only fill what is still
// missing: agent_hints first, then annotations such as "osl:256", then the
// X-Prefix- headers, then the X-Nat- headers. One of these says how many calls
// remain, which is no total: it becomes [AgentHints.RemainingCalls] where nothing
// gives the total. Lengths, times and sensitivities in older carriers may be a
// category instead of a number, read as follows (in any case):
//
//	                           LOW  MEDIUM  HIGH
//	output tokens              128     512  2048
//	milliseconds between calls  50     250   750
//	latency sensitivity          1       2     3
//
// A value that makes no sense counts as absent and is listed in the second
// result, which is not added to e.Ignored.
func ApplyHeaders(e *NvExt, get func(string) string) (*NvExt, []Ignored) {
	o := overrides{e: e, get: get}
	if get != nil {
		o.routing()
		o.priorities()
		if tenant := get(HeaderTenantID); tenant != "" {
			o.ext().CacheSalt = new(tenant)
		}
		o.session()
	}
	o.legacy()
	return o.e, o.ignored
}

const (
	reasonNotInt32  = "not a signed 32-bit integer"
	reasonNotUint32 = "not an unsigned 32-bit integer"
	reasonNotUint64 = "not an unsigned 64-bit integer"
	reasonNotBool   = "not a boolean"
)

// overrides is one run of ApplyHeaders. e stays nil until there is something to
// set.
type overrides struct {
	e       *NvExt
	get     func(string) string
	ignored []Ignored
}

func (o *overrides) ext() *NvExt {
	if o.e == nil {
		o.e = new(NvExt)
	}
	return o.e
}

// hints is where to set an agent hint.
func (o *overrides) hints() *AgentHints {
	e := o.ext()
	if e.AgentHints == nil {
		e.AgentHints = new(AgentHints)
	}
	return e.AgentHints
}

func (o *overrides) ignore(path, reason string) {
	o.ignored = append(o.ignored, Ignored{Path: path, Reason: reason})
}

func (o *overrides) routing() {
	if id, ok := o.uint(64, HeaderDynamoWorkerInstanceID, HeaderWorkerInstanceID); ok {
		e := o.ext()
		e.BackendInstanceID, e.DecodeWorkerID = new(id), new(id)
	}
	if id, ok := o.uint(64, HeaderDynamoPrefillInstanceID, HeaderPrefillInstanceID); ok {
		o.ext().PrefillWorkerID = new(id)
	}
	if r, ok := o.uint(32, HeaderDynamoDPRank, HeaderDPRank, HeaderDataParallelRank); ok {
		o.ext().DPRank = new(uint32(r))
	}
	if r, ok := o.uint(32, HeaderDynamoPrefillDPRank, HeaderPrefillDPRank); ok && r != math.MaxUint32 {
		o.ext().PrefillDPRank = new(uint32(r))
	}
}

// uint is the first of the named headers that holds a number of so many bits.
func (o *overrides) uint(bits int, names ...string) (uint64, bool) {
	for _, name := range names {
		s := strings.TrimSpace(o.get(name))
		if s == "" {
			continue
		}
		v, ok := parseUint64(s)
		switch {
		case ok && (bits == 64 || v <= math.MaxUint32):
			return v, true
		case bits == 32:
			o.ignore(name, reasonNotUint32)
		default:
			o.ignore(name, reasonNotUint64)
		}
	}
	return 0, false
}

func (o *overrides) priorities() {
	if s := strings.TrimSpace(o.get(HeaderRequestPriority)); s != "" {
		if p, err := strconv.ParseInt(s, 10, 32); err == nil {
			o.hints().Priority = new(int32(p))
		} else {
			o.ignore(HeaderRequestPriority, reasonNotInt32)
		}
	}
	if p, ok := o.uint(32, HeaderRequestStrictPriority); ok {
		o.hints().StrictPriority = new(uint32(p))
	}
}

// harness names the headers in which one kind of client says who it is.
type harness struct {
	source, id, parent, agent, final string
}

// harnesses are in order of precedence: what was said to us in particular goes
// before what a tool sends anyway, and a name that is specific before one that
// is not.
var harnesses = [...]harness{
	{source: "dynamo", id: HeaderSessionID, parent: HeaderParentSessionID, final: HeaderSessionFinal},
	{source: "claude-code", id: HeaderClaudeCodeSessionID, parent: HeaderClaudeCodeParentAgentID, agent: HeaderClaudeCodeAgentID},
	{source: "codex", id: HeaderCodexThreadID, parent: HeaderCodexParentThreadID},
	{source: "opencode", id: HeaderOpenCodeSessionID, parent: HeaderOpenCodeParentSessionID},
}

// session takes the identity from the first harness that gives one.
func (o *overrides) session() {
	for i := range harnesses {
		h := &harnesses[i]
		id := o.id(h.id)
		if id == "" {
			continue
		}
		o.ext().Session = &Session{
			ID:       id,
			ParentID: o.id(h.parent),
			AgentID:  o.id(h.agent),
			Final:    o.flag(h.final),
			Source:   h.source,
		}
		return
	}
}

// id is the named header's value if it can be an id; "" also for no name.
func (o *overrides) id(name string) string {
	if name == "" {
		return ""
	}
	s := strings.TrimSpace(o.get(name))
	if len(s) > MaxIDBytes {
		o.ignore(name, reasonLongID)
		return ""
	}
	return s
}

func (o *overrides) flag(name string) bool {
	if name == "" {
		return false
	}
	s := strings.TrimSpace(o.get(name))
	if s == "" {
		return false
	}
	v, err := strconv.ParseBool(strings.ToLower(s))
	if err != nil {
		o.ignore(name, reasonNotBool)
	}
	return v
}
