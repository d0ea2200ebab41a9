package nvext

import "encoding/json"

// NvExt is the nvext member of a request. Every field is optional: a nil
// pointer, slice or map is unset, an empty slice that is not nil was sent
// empty. The zero value is an empty nvext. All methods accept a nil receiver
// except MarshalJSON and UnmarshalJSON.
type NvExt struct {
	// GreedSampling asks for greedy decoding whatever the sampling parameters say.
	GreedSampling *bool `json:"greed_sampling,omitzero"`
	// UseRawPrompt asks to skip the chat template.
	UseRawPrompt *bool `json:"use_raw_prompt,omitzero"`
	// Annotations name side events of the stream, and carry free "key:value"
	// strings to workers and policies. [Parse] leaves out what is no string.
	Annotations []string `json:"annotations,omitzero"`
	// BackendInstanceID pins the request to a worker; see [NvExt.Pin].
	BackendInstanceID *uint64 `json:"backend_instance_id,omitzero"`
	// TokenData is the prompt, already tokenized.
	TokenData []uint32 `json:"token_data,omitzero"`
	// MaxThinkingTokens bounds the reasoning part of the answer.
	MaxThinkingTokens *uint32 `json:"max_thinking_tokens,omitzero"`
	// ExtraFields names the members wanted in the answer's nvext; see [NvExt.Wants].
	ExtraFields []string `json:"extra_fields,omitzero"`
	// PrefillWorkerID pins the prefill phase of disaggregated serving.
	PrefillWorkerID *uint64 `json:"prefill_worker_id,omitzero"`
	// DecodeWorkerID pins the decode phase of disaggregated serving.
	DecodeWorkerID *uint64 `json:"decode_worker_id,omitzero"`
	// DPRank is the data-parallel rank on the decode or aggregated worker.
	DPRank *uint32 `json:"dp_rank,omitzero"`
	// PrefillDPRank is the data-parallel rank on the prefill worker.
	PrefillDPRank *uint32 `json:"prefill_dp_rank,omitzero"`
	// AgentHints is what the agent expects of this call and those after it.
	AgentHints *AgentHints `json:"agent_hints,omitzero"`
	// RequestTimestampMS is the arrival time for simulated engines, in
	// milliseconds of their own clock.
	RequestTimestampMS *float64 `json:"request_timestamp_ms,omitzero"`
	// SessionControl opens, continues or closes a sticky session.
	SessionControl *SessionControl `json:"session_control,omitzero"`
	// CacheControl asks to keep the prompt's cache blocks for a while.
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	// CacheSalt separates the cache of one tenant from that of another.
	CacheSalt *string `json:"cache_salt,omitzero"`
	// MetadataUpload says where the request's metadata should be sent.
	MetadataUpload *MetadataUpload `json:"metadata_upload,omitzero"`
	// RoutingConstraints restricts or weighs workers by their taints.
	RoutingConstraints *RoutingConstraints `json:"routing_constraints,omitzero"`
	// Router states latency targets.
	Router *RouterTargets `json:"router,omitzero"`
	// RouterConfigOverride changes router settings for this request. It is a
	// JSON object, kept as received; the router knows its members.
	RouterConfigOverride json.RawMessage `json:"router_config_override,omitzero"`
	// AllowedWorkerIDs restricts placement to these workers. An empty list that
	// is not nil allows none.
	AllowedWorkerIDs []uint64 `json:"allowed_worker_ids,omitzero"`
	// Unknown holds the members this package does not know, in the order they
	// came. They are written back after the known ones.
	Unknown []Member `json:"-"`

	// Ignored lists the values of this nvext that have no effect. Not on the wire.
	Ignored []Ignored `json:"-"`
	// Session is who is talking, from request headers. Not on the wire.
	Session *Session `json:"-"`
	// Meta is request metadata from x-dynamo-meta-* headers. Not on the wire.
	Meta map[string]string `json:"-"`
}

// AgentHints is what an agent expects of a call. All methods accept a nil
// receiver except MarshalJSON and UnmarshalJSON.
type AgentHints struct {
	// LatencySensitivity is the older form of Priority: seconds of head start,
	// used when there is no Priority.
	LatencySensitivity *float64 `json:"latency_sensitivity,omitzero"`
	// OSL is the expected output length in tokens.
	OSL *uint32 `json:"osl,omitzero"`
	// Priority orders waiting requests; higher is more urgent.
	Priority *int32 `json:"priority,omitzero"`
	// StrictPriority is a tier: a higher one goes before every lower one,
	// whatever their priorities.
	StrictPriority *uint32 `json:"strict_priority,omitzero"`
	// SpeculativePrefill asks to warm the cache for the next turn once this one
	// has finished.
	SpeculativePrefill *bool `json:"speculative_prefill,omitzero"`
	// PrefixID names calls that share a prompt prefix. 1 to [MaxIDBytes] bytes.
	PrefixID *string `json:"prefix_id,omitzero"`
	// TotalRequests is how many calls are expected for the prefix in all, this
	// one included. At least 1 after Parse.
	TotalRequests *uint64 `json:"total_requests,omitzero"`
	// RemainingCalls is how many calls for the prefix follow this one, from a request
	// header; nil where there is a TotalRequests. Not on the wire.
	RemainingCalls *uint64 `json:"-"`
	// IATMS is the expected time between two calls, in milliseconds.
	IATMS *uint64 `json:"iat,omitzero"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// SessionAction is what a turn does to its session.
type SessionAction string

const (
	// SessionOpen starts a session on the worker that serves the turn.
	SessionOpen SessionAction = "open"
	// SessionClose ends the session after the turn.
	SessionClose SessionAction = "close"
)

// DefaultSessionTimeoutSeconds is the timeout of a session that states none.
const DefaultSessionTimeoutSeconds = 300

// SessionControl ties turns to the worker that holds their state.
type SessionControl struct {
	// SessionID names the session. Required on the wire.
	SessionID string `json:"session_id"`
	// Action opens or closes the session; empty continues it.
	Action SessionAction `json:"action,omitzero"`
	// TimeoutSeconds is the idle time after which the session is dropped. Always
	// written; [Parse] fills in [DefaultSessionTimeoutSeconds].
	TimeoutSeconds uint64 `json:"timeout"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// workerGraceSeconds is how much longer than the router a worker keeps a
// session, so that the router is the one to let go.
const workerGraceSeconds = 30

// WorkerTimeoutSeconds is the timeout to give the worker: a little longer than
// the router's own, saturating.
func (s *SessionControl) WorkerTimeoutSeconds() uint64 {
	if s == nil {
		return 0
	}
	return saturatingAdd(s.TimeoutSeconds, workerGraceSeconds)
}

// CacheControl asks to keep the request's prompt blocks in cache after it ends.
type CacheControl struct {
	// Type is the kind of retention; [CacheEphemeral] is the only one known.
	Type *string `json:"type,omitzero"`
	// TTL is how long, as [ParseTTL] reads it.
	TTL *string `json:"ttl,omitzero"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// MetadataUpload says where to send the request's metadata.
type MetadataUpload struct {
	// URL is the destination.
	URL *string `json:"url,omitzero"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// RoutingConstraints restricts or weighs workers by their taints.
type RoutingConstraints struct {
	// RequiredTaints must all be present on the worker.
	RequiredTaints []string `json:"required_taints,omitzero"`
	// PreferredTaints attract (positive weight) or repel (negative weight).
	PreferredTaints map[string]float64 `json:"preferred_taints,omitzero"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// RouterTargets states the latencies a client would like, in milliseconds.
type RouterTargets struct {
	// TTFTTargetMS is the wanted time to first token.
	TTFTTargetMS *float64 `json:"ttft_target,omitzero"`
	// ITLTargetMS is the wanted time between tokens.
	ITLTargetMS *float64 `json:"itl_target,omitzero"`
	// Unknown holds the members this package does not know.
	Unknown []Member `json:"-"`
}

// Member is one key of a JSON object with its value as received.
type Member struct {
	// Key is the decoded key. It must not be one that the object's type knows.
	Key string
	// Value is the value's JSON text; empty is written as null.
	Value json.RawMessage
}

// Ignored is a value that was given and has no effect. It never holds the value
// itself.
type Ignored struct {
	// Path is the JSON path or the header's name. The set of paths is small and
	// fixed, so it can label a metric.
	Path string
	// Reason says in a few words what is wrong; from a fixed set too.
	Reason string
}

// MaxIDBytes is the longest prefix or session id taken from a request. A longer
// one is ignored, since servers key state by it.
const MaxIDBytes = 256

// Session is who is talking, as the headers of a known agent harness say.
type Session struct {
	// ID names the conversation. Never empty.
	ID string
	// ParentID names the conversation or agent that started this one.
	ParentID string
	// AgentID names the agent inside the conversation.
	AgentID string
	// Final marks the last request of the conversation.
	Final bool
	// Source is the harness: "dynamo", "claude-code", "codex" or "opencode".
	Source string
}
