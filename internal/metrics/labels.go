package metrics

import (
	"net/http"
	"slices"
	"strings"
)

// UnknownModel is the model name under which requests for models that are not
// served are counted, so that a client cannot create series by inventing names.
const UnknownModel = "unknown_model"

// other replaces a label value that is not on its list.
const other = "other"

// Endpoint is the API a request came in by: the endpoint label.
type Endpoint string

// The endpoints. Any other value is counted as "other".
const (
	EndpointCompletions       Endpoint = "completions"
	EndpointChatCompletions   Endpoint = "chat_completions"
	EndpointEmbeddings        Endpoint = "embeddings"
	EndpointImages            Endpoint = "images"
	EndpointVideos            Endpoint = "videos"
	EndpointAudios            Endpoint = "audios"
	EndpointResponses         Endpoint = "responses"
	EndpointAnthropicMessages Endpoint = "anthropic_messages"
	EndpointTensor            Endpoint = "tensor"
)

var endpoints = []Endpoint{
	EndpointCompletions, EndpointChatCompletions, EndpointEmbeddings,
	EndpointImages, EndpointVideos, EndpointAudios, EndpointResponses,
	EndpointAnthropicMessages, EndpointTensor, other,
}

var requestTypes = []string{"unary", "stream"}

// ErrorType says how a request ended: the error_type label. The empty value is
// success.
type ErrorType string

// The error types. Any other value is counted as ErrInternal.
const (
	ErrNone            ErrorType = ""
	ErrValidation      ErrorType = "validation"
	ErrNotFound        ErrorType = "not_found"
	ErrOverload        ErrorType = "overload"
	ErrCancelled       ErrorType = "cancelled"
	ErrResponseTimeout ErrorType = "response_timeout"
	ErrNotImplemented  ErrorType = "not_implemented"
	ErrUnavailable     ErrorType = "unavailable" // no worker; told from overload by the caller
	ErrInternal        ErrorType = "internal"
)

// errorTypes ends with the type that stands for those not listed.
var errorTypes = []ErrorType{
	ErrNone, ErrValidation, ErrNotFound, ErrOverload, ErrCancelled,
	ErrResponseTimeout, ErrNotImplemented, ErrUnavailable, ErrInternal,
}

// Statuses without a name in net/http.
const (
	statusClientClosed = 499
	statusSiteOverload = 529
)

// ErrorTypeOf classifies an HTTP status. Every 4xx without a meaning of its own
// is ErrValidation: a prompt longer than the context is the client's mistake as
// much as a malformed field. A 503 is ErrOverload; a caller that answers 503
// because it has no worker records ErrUnavailable instead.
func ErrorTypeOf(status int) ErrorType {
	switch status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusSiteOverload:
		return ErrOverload
	case statusClientClosed:
		return ErrCancelled
	case http.StatusNotImplemented:
		return ErrNotImplemented
	case http.StatusGatewayTimeout:
		return ErrResponseTimeout
	}
	switch {
	case status >= 200 && status < 400:
		return ErrNone
	case status >= 400 && status < 500:
		return ErrValidation
	}
	return ErrInternal
}

// status is the status label that goes with an error type.
func (e ErrorType) status() string {
	if e == ErrNone {
		return "success"
	}
	return "error"
}

// WorkerType is the role of a worker: the worker_type label. A worker that
// serves both phases counts as WorkerDecode.
type WorkerType string

// The worker types. Any other value is taken for WorkerDecode.
const (
	WorkerDecode  WorkerType = "decode"
	WorkerPrefill WorkerType = "prefill"
)

func (t WorkerType) known() WorkerType {
	if t == WorkerPrefill {
		return t
	}
	return WorkerDecode
}

// component is the dynamo_component label of a router over workers of type t.
func (t WorkerType) component() string {
	if t == WorkerPrefill {
		return "prefill"
	}
	return "backend"
}

// Stage is a part of a request's path whose duration is measured: the stage
// label.
type Stage uint8

// The stages, in the order a request passes them.
const (
	StagePreprocess         Stage = iota // template, tokenization, hints
	StageRoute                           // placement, without time in the queue
	StageTransportRoundtrip              // from the send to the engine's first byte
	numStages
)

var stageNames = [numStages]string{"preprocess", "route", "transport_roundtrip"}

// RetryReason says why a request was sent to another worker.
type RetryReason string

// The retry reasons. Any other value is counted as "other".
const (
	RetryConnect        RetryReason = "connect"         // no connection
	RetryBadGateway     RetryReason = "bad_gateway"     // status 502
	RetryUnavailable    RetryReason = "unavailable"     // status 503
	RetryGatewayTimeout RetryReason = "gateway_timeout" // status 504
)

var retryReasons = []RetryReason{
	RetryConnect, RetryBadGateway, RetryUnavailable, RetryGatewayTimeout, other,
}

// ShedReason says why a request was turned away to protect the fleet or this
// process.
type ShedReason string

// The shed reasons. Any other value is counted as "other".
const (
	ShedBusy       ShedReason = "busy"        // every worker is past its load threshold
	ShedQueueFull  ShedReason = "queue_full"  // the scheduling queue is at its limit
	ShedInflight   ShedReason = "inflight"    // too many requests at once
	ShedBodyBudget ShedReason = "body_budget" // buffered bodies are at their byte budget
	ShedDraining   ShedReason = "draining"    // the server is shutting down
)

var shedReasons = []ShedReason{
	ShedBusy, ShedQueueFull, ShedInflight, ShedBodyBudget, ShedDraining, other,
}

// EngineErrorKind says how an engine failed a request.
type EngineErrorKind string

// The kinds of engine error. Any other value is counted as "other".
const (
	EngineConnect  EngineErrorKind = "connect"  // no connection
	EngineTimeout  EngineErrorKind = "timeout"  // no answer, or none further, in time
	EngineStatus   EngineErrorKind = "status"   // answered with a 5xx status
	EngineStream   EngineErrorKind = "stream"   // the answer broke off
	EngineProtocol EngineErrorKind = "protocol" // the answer could not be understood
)

var engineErrorKinds = []EngineErrorKind{
	EngineConnect, EngineTimeout, EngineStatus, EngineStream, EngineProtocol, other,
}

// SkipReason says why a prompt has no tokens.
type SkipReason string

// The reasons. Any other value is counted as "other".
const (
	SkipNoTemplate SkipReason = "no_template" // the model's files have no chat template
	SkipMedia      SkipReason = "media"       // the template has no place for what is not text
	SkipTemplate   SkipReason = "template"    // the template refused the chat or failed
	SkipRequest    SkipReason = "request"     // the prompt cannot be read, or the request has it changed
	SkipEngine     SkipReason = "engine"      // the engine that was asked did not say
	SkipNoEngine   SkipReason = "no_engine"   // no engine could be asked
	SkipBatch      SkipReason = "batch"       // several prompts, and the engine would have to be asked for each
)

var skipReasons = []SkipReason{
	SkipNoTemplate, SkipMedia, SkipTemplate, SkipRequest, SkipEngine, SkipNoEngine, SkipBatch, other,
}

// QueueEnd says why a request left the queue without a worker: the reason label.
type QueueEnd string

// The ends. Any other value is counted as "other".
const (
	QueueTimeout   QueueEnd = "timeout"    // it waited as long as it may
	QueueCancelled QueueEnd = "cancelled"  // the client went away
	QueueNoWorkers QueueEnd = "no_workers" // no worker was left that could take it
)

var queueEnds = []QueueEnd{QueueTimeout, QueueCancelled, QueueNoWorkers, other}

// QueueLimit is the limit for which a request was not let into the queue: the
// reason label.
type QueueLimit string

// The limits. Any other value is counted as "other".
const (
	QueueLimitRequests     QueueLimit = "request_limit"
	QueueLimitPromptTokens QueueLimit = "raw_isl_token_limit"
	QueueLimitCachedTokens QueueLimit = "cached_token_limit"
)

var queueLimits = []QueueLimit{QueueLimitRequests, QueueLimitPromptTokens, QueueLimitCachedTokens, other}

// decisionReasons are what can decide a placement, as routing reports name it.
var decisionReasons = []string{
	"pinned", "session", "only", "round_robin", "random", "least_loaded", "cost", "thompson",
	"selector", other,
}

// Verdict says how the prediction of a prompt's cached tokens came out: the
// verdict label.
type Verdict string

// The verdicts. Any other value is counted as VerdictUnknown.
const (
	VerdictAgreed        Verdict = "agreed"          // as predicted, and no worker had more
	VerdictTokensDiffer  Verdict = "tokens_differ"   // the engine counts the prompt otherwise
	VerdictNoReuse       Verdict = "no_reuse"        // no worker had any of the prompt
	VerdictUnforeseen    Verdict = "unforeseen"      // the worker had some, and none was known to
	VerdictIndexStale    Verdict = "index_stale"     // the worker had less than predicted
	VerdictTradedForLoad Verdict = "traded_for_load" // another worker had more, and more to do
	VerdictUnknown       Verdict = "unknown"         // the engine did not say, or the prediction was a guess
)

// verdicts ends with the one that stands for those not listed.
var verdicts = [...]Verdict{
	VerdictAgreed, VerdictTokensDiffer, VerdictNoReuse, VerdictUnforeseen, VerdictIndexStale,
	VerdictTradedForLoad, VerdictUnknown,
}

// InferredField is what was inferred of a request: the field label.
type InferredField string

// The fields. Any other value is counted as "other".
const (
	InferredOSL            InferredField = "osl"             // tokens of the answer
	InferredRemainingCalls InferredField = "remaining_calls" // of the conversation
	InferredIAT            InferredField = "iat_ms"          // time to its next call
)

var inferredFields = []InferredField{InferredOSL, InferredRemainingCalls, InferredIAT, other}

// InferredSource is what something was inferred from: the source label.
type InferredSource string

// The sources. Any other value is counted as "other".
const (
	InferredFromSession InferredSource = "session" // earlier calls of the conversation
	InferredFromFamily  InferredSource = "family"  // conversations that began alike
)

var inferredSources = []InferredSource{InferredFromSession, InferredFromFamily, other}

// hintFields are the fields by which ignored hints are told apart, as paths
// below nvext; "header" stands for all request headers.
var hintFields = []string{
	"agent_hints", "agent_hints.iat", "agent_hints.latency_sensitivity",
	"agent_hints.osl", "agent_hints.prefix_id", "agent_hints.priority",
	"agent_hints.speculative_prefill", "agent_hints.strict_priority",
	"agent_hints.total_requests", "allowed_worker_ids", "annotations",
	"backend_instance_id", "cache_control", "cache_control.ttl",
	"cache_control.type", "cache_salt", "decode_worker_id", "dp_rank",
	"extra_fields", "greed_sampling", "max_thinking_tokens", "metadata_upload",
	"prefill_dp_rank", "prefill_worker_id", "request_timestamp_ms", "router",
	"router_config_override", "routing_constraints", "session_control",
	"session_control.action", "session_control.timeout", "session_control.session_id",
	"token_data", "use_raw_prompt", "header", other,
}

// hintField maps a path or header name onto hintFields.
func hintField(path string) string {
	if len(path) >= 2 && (path[0] == 'x' || path[0] == 'X') && path[1] == '-' {
		return "header"
	}
	path = strings.TrimPrefix(path, "nvext.")
	return hintFields[index(hintFields, path)]
}

// index returns the place of v in list, whose last element stands for every
// value that is not listed.
func index[T comparable](list []T, v T) int {
	if i := slices.Index(list, v); i >= 0 {
		return i
	}
	return len(list) - 1
}
