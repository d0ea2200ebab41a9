package nvext

import (
	"encoding/json"
	"math"
	"time"
)

// Option sets something on an NvExt; see [New].
type Option func(*NvExt)

// New makes the nvext of a request. Later options win over earlier ones, except
// that lists grow.
func New(options ...Option) *NvExt {
	e := new(NvExt)
	for _, set := range options {
		set(e)
	}
	return e
}

// Priority orders the request among waiting ones: higher is more urgent, each
// unit a second of head start. Without one a request has priority 0.
func Priority(p int32) Option {
	return hint(func(h *AgentHints) { h.Priority = new(p) })
}

// StrictPriority puts the request in a tier that goes before all lower ones.
func StrictPriority(tier uint32) Option {
	return hint(func(h *AgentHints) { h.StrictPriority = new(tier) })
}

// LatencySensitivity is the older form of [Priority], for servers that know no
// other. A number that is not finite is not set.
func LatencySensitivity(s float64) Option {
	return hint(func(h *AgentHints) {
		if !math.IsNaN(s) && !math.IsInf(s, 0) {
			h.LatencySensitivity = new(s)
		}
	})
}

// OSL says how many tokens the answer will have, more or less.
func OSL(tokens uint32) Option {
	return hint(func(h *AgentHints) { h.OSL = new(tokens) })
}

// SpeculativePrefill asks to warm the cache for the next turn of the
// conversation when this answer is done.
func SpeculativePrefill() Option {
	return hint(func(h *AgentHints) { h.SpeculativePrefill = new(true) })
}

// PrefixID names the calls that share a prompt prefix, in at most [MaxIDBytes]
// bytes; servers ignore a longer id.
func PrefixID(id string) Option {
	return hint(func(h *AgentHints) { h.PrefixID = new(id) })
}

// Remaining says on the first call of a prefix how many will follow it. On the wire
// it is [TotalRequests] with this call counted, since that is what servers know: they
// count the calls themselves. On a later call it would leave out those before it, and
// say nothing new where the total was said before.
func Remaining(calls uint64) Option { return TotalRequests(saturatingAdd(calls, 1)) }

// TotalRequests says how many calls the prefix sees in all, with this one and
// those before it.
func TotalRequests(n uint64) Option {
	return hint(func(h *AgentHints) { h.TotalRequests = new(n) })
}

// InterArrival says how far apart the calls of a prefix are. It is sent in
// milliseconds, rounded, at least one.
func InterArrival(d time.Duration) Option {
	ms := uint64(max(d.Round(time.Millisecond).Milliseconds(), 1))
	return hint(func(h *AgentHints) { h.IATMS = new(ms) })
}

// CacheTTL asks to keep the prompt in cache for so long after the answer; see
// [TTL] for a time that covers the calls to come.
func CacheTTL(d time.Duration) Option {
	return func(e *NvExt) {
		e.CacheControl = &CacheControl{Type: new(CacheEphemeral), TTL: new(FormatTTL(d))}
	}
}

// Extra asks for members of the answer's nvext, as "timing", "worker_id" or
// "routing".
func Extra(fields ...string) Option {
	return func(e *NvExt) { e.ExtraFields = append(e.ExtraFields, fields...) }
}

// Annotate asks for side events of the stream, as "request_id", or adds
// "key:value" strings for workers and policies.
func Annotate(annotations ...string) Option {
	return func(e *NvExt) { e.Annotations = append(e.Annotations, annotations...) }
}

// PinWorker insists on a worker for every phase that has no pin of its own.
func PinWorker(id uint64) Option {
	return func(e *NvExt) { e.BackendInstanceID = new(id) }
}

// PinRank insists on a data-parallel rank of the pinned worker.
func PinRank(rank uint32) Option {
	return func(e *NvExt) { e.DPRank = new(rank) }
}

// PinPrefill insists on a worker for the prefill phase.
func PinPrefill(id uint64) Option {
	return func(e *NvExt) { e.PrefillWorkerID = new(id) }
}

// PinPrefillRank insists on a data-parallel rank of the prefill worker.
func PinPrefillRank(rank uint32) Option {
	return func(e *NvExt) { e.PrefillDPRank = new(rank) }
}

// PinDecode insists on a worker for the decode phase.
func PinDecode(id uint64) Option {
	return func(e *NvExt) { e.DecodeWorkerID = new(id) }
}

// AllowWorkers restricts the choice to these workers. Without an argument it
// allows none.
func AllowWorkers(ids ...uint64) Option {
	return func(e *NvExt) {
		if e.AllowedWorkerIDs == nil {
			e.AllowedWorkerIDs = []uint64{}
		}
		e.AllowedWorkerIDs = append(e.AllowedWorkerIDs, ids...)
	}
}

// RequireTaints restricts the choice to workers that have all these taints.
func RequireTaints(taints ...string) Option {
	return constraint(func(c *RoutingConstraints) {
		c.RequiredTaints = append(c.RequiredTaints, taints...)
	})
}

// PreferTaint attracts the request to workers with the taint, or repels it
// where the weight is negative. A weight that is not finite is not set.
func PreferTaint(taint string, weight float64) Option {
	return constraint(func(c *RoutingConstraints) {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return
		}
		if c.PreferredTaints == nil {
			c.PreferredTaints = make(map[string]float64)
		}
		c.PreferredTaints[taint] = weight
	})
}

// LatencyTargets states the wanted time to first token and between tokens; a
// zero is not stated.
func LatencyTargets(ttft, itl time.Duration) Option {
	return func(e *NvExt) {
		e.Router = &RouterTargets{TTFTTargetMS: millis(ttft), ITLTargetMS: millis(itl)}
	}
}

// RouterOverride changes router settings for this request; settings is a JSON
// object.
func RouterOverride(settings json.RawMessage) Option {
	return func(e *NvExt) { e.RouterConfigOverride = settings }
}

// Tenant keeps the request's cache apart from that of other tenants.
func Tenant(salt string) Option {
	return func(e *NvExt) { e.CacheSalt = new(salt) }
}

// OpenSession starts a sticky session that is dropped when idle for so long,
// rounded up to seconds; 0 is [DefaultSessionTimeoutSeconds].
func OpenSession(id string, idle time.Duration) Option {
	timeout := uint64(DefaultSessionTimeoutSeconds)
	if idle > 0 {
		timeout = uint64((idle-1)/time.Second) + 1
	}
	return session(id, SessionOpen, timeout)
}

// ContinueSession sends the request where the session is.
func ContinueSession(id string) Option {
	return session(id, "", DefaultSessionTimeoutSeconds)
}

// CloseSession is [ContinueSession] for the last request.
func CloseSession(id string) Option {
	return session(id, SessionClose, DefaultSessionTimeoutSeconds)
}

// Greedy asks for greedy decoding.
func Greedy() Option {
	return func(e *NvExt) { e.GreedSampling = new(true) }
}

// MaxThinkingTokens bounds the reasoning part of the answer.
func MaxThinkingTokens(n uint32) Option {
	return func(e *NvExt) { e.MaxThinkingTokens = new(n) }
}

// TokenData gives the prompt already tokenized. The slice is kept.
func TokenData(ids []uint32) Option {
	return func(e *NvExt) { e.TokenData = ids }
}

func hint(set func(*AgentHints)) Option {
	return func(e *NvExt) {
		if e.AgentHints == nil {
			e.AgentHints = new(AgentHints)
		}
		set(e.AgentHints)
	}
}

func constraint(set func(*RoutingConstraints)) Option {
	return func(e *NvExt) {
		if e.RoutingConstraints == nil {
			e.RoutingConstraints = new(RoutingConstraints)
		}
		set(e.RoutingConstraints)
	}
}

func session(id string, action SessionAction, timeoutSeconds uint64) Option {
	return func(e *NvExt) {
		e.SessionControl = &SessionControl{SessionID: id, Action: action, TimeoutSeconds: timeoutSeconds}
	}
}

func millis(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(float64(d) / float64(time.Millisecond))
}
