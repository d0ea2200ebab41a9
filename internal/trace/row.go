package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

// Schema names the format of a [Row].
const Schema = "stator.request.trace.v1"

// Row is one finished request. Its JSON form is one line of a trace; its members
// are a contract with everything that reads traces. A nil pointer is something
// that is not known, which is never the same as zero.
//
// A row never holds an API key, a cache salt, or the name of a tenant (which is
// one), and the prompt's text only in Text.
type Row struct {
	// Schema is [Schema]; [Row.AppendJSON] fills it in.
	Schema string `json:"schema"`
	// RequestID is the server's name for the request.
	RequestID string `json:"request_id"`
	// XRequestID is the client's name for it, if it gave one.
	XRequestID string `json:"x_request_id,omitzero"`
	// Model is the model as routed.
	Model string `json:"model"`
	// Endpoint is "chat_completions" or "completions".
	Endpoint string `json:"endpoint"`
	// Stream is whether the client asked for a stream.
	Stream bool `json:"stream"`
	// ArrivalUS is when the request arrived, in microseconds since the epoch: a
	// whole number that every JSON reader keeps exact. All times in milliseconds
	// below are counted from it.
	ArrivalUS int64 `json:"arrival_us"`
	// RequestTimestampMS is nvext.request_timestamp_ms as sent. It is recorded and
	// has no effect.
	RequestTimestampMS *float64 `json:"request_timestamp_ms,omitzero"`
	// Key is the name of the API key in the configuration.
	Key string `json:"key,omitzero"`
	// SessionID names the conversation that the request belongs to.
	SessionID string `json:"session_id,omitzero"`
	// ParentSessionID names the conversation that started this one.
	ParentSessionID string `json:"parent_session_id,omitzero"`
	// Hints is what the client said to expect.
	Hints *Hints `json:"hints,omitzero"`
	// Inferred is what the server expected where the client said nothing.
	Inferred []Inferred `json:"inferred,omitempty"`
	// Constraints is where the client would have the request run.
	Constraints *Constraints `json:"constraints,omitzero"`

	// InputTokens is the length of the prompt; of all prompts if there are several.
	InputTokens int `json:"input_tokens"`
	// InputGuessed is set when InputTokens is a guess from the prompt's size.
	InputGuessed bool `json:"input_guessed,omitzero"`
	// EngineInputTokens is the length of the prompt as the engine counted it.
	EngineInputTokens *int `json:"engine_input_tokens,omitzero"`
	// MaxOutputTokens is how many tokens the client would take.
	MaxOutputTokens *int `json:"max_output_tokens,omitzero"`
	// TokenSource is where the prompt's token ids came from: "local", "engine",
	// "client", or "none" when there were none.
	TokenSource string `json:"token_source"`
	// Tokenizer is the fingerprint of the tokenizer that made them, if known.
	Tokenizer string `json:"tokenizer,omitzero"`
	// Prompts is the number of prompts, where it is not one. Such a row has no
	// hashes.
	Prompts int `json:"prompts,omitzero"`
	// Choices is the number of answers asked for, where it is not one.
	Choices int `json:"choices,omitzero"`
	// Adapter is the LoRA adapter. Hashes under another adapter have nothing in
	// common.
	Adapter string `json:"adapter,omitzero"`
	// Salted is set when a cache salt is part of the hashes.
	Salted bool `json:"salted,omitzero"`
	// BlockSize is how many tokens a hash stands for; 0 when there are no hashes.
	BlockSize int `json:"block_size,omitzero"`
	// BlockHashes are the sequence hashes of the prompt's full blocks, in order:
	// each stands for its block and for all blocks before it. A trace that was
	// converted from one where they are known may end with the hash of the partial
	// last block. A [Writer] leaves them out of a row that would be above [MaxLine].
	BlockHashes Hashes `json:"block_hashes,omitempty"`
	// Text is the prompt, only where recording it was asked for: as formatted
	// where that is known, else as the client sent it. It is the first to be left
	// out of a row that is too long.
	Text string `json:"text,omitzero"`

	// Attempts are the placements, one per try, in order.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Worker is who served the request in the end. Ids are plain numbers, here and
	// in the attempts: see [Constraints].
	Worker *nvext.WorkerIDs `json:"worker,omitzero"`

	// TokenizedMS is when the prompt was tokenized.
	TokenizedMS *nvext.Float `json:"tokenized_ms,omitzero"`
	// PlacedMS is when the last attempt was placed.
	PlacedMS *nvext.Float `json:"placed_ms,omitzero"`
	// SentMS is when the last attempt was on its way to the engine.
	SentMS *nvext.Float `json:"sent_ms,omitzero"`
	// TTFTMS is when the first token came.
	TTFTMS *nvext.Float `json:"ttft_ms,omitzero"`
	// TotalTimeMS is when the request ended.
	TotalTimeMS *nvext.Float `json:"total_time_ms,omitzero"`
	// AvgITLMS is the mean time between two tokens.
	AvgITLMS *nvext.Float `json:"avg_itl_ms,omitzero"`

	// OutputTokens is how many tokens were generated, of all choices together, as
	// far as known.
	OutputTokens *int `json:"output_tokens,omitzero"`
	// FinishReason is why the engine stopped, as "stop" or "length".
	FinishReason string `json:"finish_reason,omitzero"`
	// PredictedCachedTokens is how many prompt tokens the last attempt's worker was
	// expected to have in its cache.
	PredictedCachedTokens *int `json:"predicted_cached_tokens"`
	// CachedTokens is how many it had, as the engine says; null when it did not.
	CachedTokens *int `json:"cached_tokens"`
	// Outcome is how the request ended.
	Outcome Outcome `json:"outcome"`
	// ErrorCode is the code of the error that the client got, if any.
	ErrorCode string `json:"error_code,omitzero"`
	// Status is the HTTP status that the client got; 0 if none was sent.
	Status int `json:"status"`

	// Prepare, if not nil, is called with the row before it is encoded, by the
	// goroutine that writes.
	Prepare func(*Row) `json:"-"`
}

// Outcome is how a request ended.
type Outcome string

const (
	// OutcomeCompleted: the client got all of the answer.
	OutcomeCompleted Outcome = "completed"
	// OutcomeCancelled: the client left.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeRefused: the request was turned away before an engine began it,
	// because it was not acceptable or because there was no room.
	OutcomeRefused Outcome = "refused"
	// OutcomeError: something failed.
	OutcomeError Outcome = "error"
)

// Attempt is one placement of a request.
type Attempt struct {
	// Routing is the decision with its inputs: every candidate as it was at the
	// time. It is nil when nothing could be chosen from.
	Routing *nvext.Routing `json:"routing,omitzero"`
	// PlacedMS is when the decision was made, since the request's arrival.
	PlacedMS *nvext.Float `json:"placed_ms,omitzero"`
	// Failure is why the request had to be placed again, or was given up, as
	// "unreachable"; empty for the attempt that worked.
	Failure string `json:"failure,omitzero"`
	// Status is the HTTP status with which the engine refused.
	Status int `json:"status,omitzero"`
}

// Hints is what a client said to expect of a request, by the names that nvext
// has for it. Hints that the server does not know are not recorded.
type Hints struct {
	LatencySensitivity *float64 `json:"latency_sensitivity,omitzero"`
	// OSL is the expected output length in tokens.
	OSL            *uint32 `json:"osl,omitzero"`
	Priority       *int32  `json:"priority,omitzero"`
	StrictPriority *uint32 `json:"strict_priority,omitzero"`
	// SpeculativePrefill asks to warm the cache for the next turn.
	SpeculativePrefill *bool `json:"speculative_prefill,omitzero"`
	// PrefixID names calls that share a prefix.
	PrefixID *string `json:"prefix_id,omitzero"`
	// TotalRequests is how many calls are expected for the prefix. It is written
	// as sent: above 2^53, JavaScript and jq read another number.
	TotalRequests *uint64 `json:"total_requests,omitzero"`
	// IATMS is the expected time between two calls; above 2^53 as TotalRequests.
	IATMS *uint64 `json:"iat,omitzero"`
	// CacheTTL is how long the prompt's blocks should be kept, as sent.
	CacheTTL *string `json:"cache_ttl,omitzero"`
	// TTFTTargetMS and ITLTargetMS are the latencies the client would like.
	TTFTTargetMS *float64 `json:"ttft_target,omitzero"`
	ITLTargetMS  *float64 `json:"itl_target,omitzero"`
	// SessionAction is "open" or "close" where the request does that to its
	// session.
	SessionAction nvext.SessionAction `json:"session_action,omitzero"`
}

// HintsOf returns the hints in an nvext, nil if there are none. The values are
// shared with ext.
func HintsOf(ext *nvext.NvExt) *Hints {
	if ext == nil {
		return nil
	}
	var h Hints
	if a := ext.AgentHints; a != nil {
		h.LatencySensitivity, h.OSL = a.LatencySensitivity, a.OSL
		h.Priority, h.StrictPriority = a.Priority, a.StrictPriority
		h.SpeculativePrefill = a.SpeculativePrefill
		h.PrefixID, h.TotalRequests, h.IATMS = a.PrefixID, a.TotalRequests, a.IATMS
	}
	if c := ext.CacheControl; c != nil {
		h.CacheTTL = c.TTL
	}
	if r := ext.Router; r != nil {
		h.TTFTTargetMS, h.ITLTargetMS = r.TTFTTargetMS, r.ITLTargetMS
	}
	if s := ext.SessionControl; s != nil {
		h.SessionAction = s.Action
	}
	if h == (Hints{}) {
		return nil
	}
	return &h
}

// Inferred is something that a server expected of a request of its own accord: a member of
// [nvext.Expected], its value, and what that was inferred from.
type Inferred struct {
	Field   nvext.InferredField `json:"field"`
	Value   uint64              `json:"value"`
	Source  nvext.Source        `json:"source"`
	Samples int                 `json:"samples"`
}

// InferredOf returns what was inferred of what is expected, nil if nothing was or e is nil.
func InferredOf(e *nvext.Expected) []Inferred {
	if e == nil {
		return nil
	}
	var out []Inferred
	for _, from := range e.Inferred {
		in := Inferred{Field: from.Field, Source: from.Source, Samples: from.Samples}
		switch from.Field {
		case nvext.InferredOSL:
			in.Value = uint64(*e.OSL)
		case nvext.InferredRemainingCalls:
			in.Value = *e.RemainingCalls
		case nvext.InferredIAT:
			in.Value = *e.IATMS
		}
		out = append(out, in)
	}
	return out
}

// Constraints is what a client said about where its request may run. The same
// names in nvext say the same.
type Constraints struct {
	// WorkerID and DPRank are the pin: the worker that the request insists on. A
	// configured id may be above 2^53, where JavaScript and jq read another number.
	WorkerID *uint64 `json:"worker_id,omitzero"`
	DPRank   *uint32 `json:"dp_rank,omitzero"`
	// AllowedWorkerIDs are the workers it may go to; an empty list that is not nil
	// allows none. What is said about WorkerID holds for each.
	AllowedWorkerIDs []uint64           `json:"allowed_worker_ids,omitzero"`
	RequiredTaints   []string           `json:"required_taints,omitzero"`
	PreferredTaints  map[string]float64 `json:"preferred_taints,omitzero"`
	// RouterConfigOverride is as sent, and left out if it is above 4 KiB.
	RouterConfigOverride json.RawMessage `json:"router_config_override,omitzero"`
}

// maxOverride is the longest router_config_override in a row.
const maxOverride = 4 << 10

// ConstraintsOf returns the constraints in an nvext for the phase that answers
// the client, nil if there are none. The values are shared with ext.
func ConstraintsOf(ext *nvext.NvExt, phase nvext.Phase) *Constraints {
	if ext == nil {
		return nil
	}
	var c Constraints
	worker, rank, pinned := ext.Pin(phase)
	if pinned {
		c.WorkerID, c.DPRank = &worker, rank
	}
	c.AllowedWorkerIDs = ext.AllowedWorkerIDs
	if len(ext.RouterConfigOverride) <= maxOverride {
		c.RouterConfigOverride = ext.RouterConfigOverride
	}
	if r := ext.RoutingConstraints; r != nil {
		c.RequiredTaints, c.PreferredTaints = r.RequiredTaints, r.PreferredTaints
	}
	if !pinned && c.AllowedWorkerIDs == nil && c.RequiredTaints == nil && c.PreferredTaints == nil && c.RouterConfigOverride == nil {
		return nil
	}
	return &c
}

// MS returns a span as the times of a [Row] hold it: in milliseconds, to the
// microsecond.
func MS(d time.Duration) *nvext.Float {
	f := nvext.Float(math.Round(float64(d)/float64(time.Microsecond)) / 1000)
	return &f
}

// AppendJSON appends the row as one line, line feed included. The error is that
// of a number that JSON does not have or of a router_config_override that is not
// JSON; dst is returned as it was then.
func (r *Row) AppendJSON(dst []byte) ([]byte, error) {
	r.Schema = Schema
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return dst, fmt.Errorf("trace row of request %s: %w", r.RequestID, err)
	}
	return buf.Bytes(), nil
}

// shorten leaves out what makes a row long: its text, then its hashes. It reports
// whether there was something to leave out.
func (r *Row) shorten() bool {
	switch {
	case r.Text != "":
		r.Text = ""
	case len(r.BlockHashes) > 0:
		r.BlockHashes, r.BlockSize = nil, 0
	default:
		return false
	}
	return true
}

// Hashes are sequence hashes of blocks. In JSON each is a string of 16
// hexadecimal digits, because a number beyond 2^53 comes out of JavaScript and jq
// as another number.
type Hashes []kv.BlockID

// MarshalJSON writes an array of strings.
func (h Hashes) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 2+len(h)*19)
	out = append(out, '[')
	for i, id := range h {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		for shift := 60; shift >= 0; shift -= 4 {
			out = append(out, "0123456789abcdef"[id>>shift&15])
		}
		out = append(out, '"')
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *Hashes) UnmarshalJSON(raw []byte) error {
	var texts []string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return err
	}
	out := make(Hashes, len(texts))
	for i, s := range texts {
		id, ok := parseHash(s)
		if !ok {
			return fmt.Errorf("hash %d: expected 16 hexadecimal digits, got %q", i, s)
		}
		out[i] = id
	}
	*h = out
	return nil
}

// parseHash reads 16 hexadecimal digits.
func parseHash[T string | []byte](s T) (kv.BlockID, bool) {
	if len(s) != 16 {
		return 0, false
	}
	var id kv.BlockID
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		id = id<<4 | kv.BlockID(c)
	}
	return id, true
}
