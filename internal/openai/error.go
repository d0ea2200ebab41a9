package openai

import (
	"net/http"
	"strconv"
)

// Code names a condition that a client is told about. It is the code member of
// an error body, and the key of the one table that gives each condition its
// status and type.
type Code string

// The conditions.
const (
	CodeInvalidJSON       Code = "invalid_json"
	CodeInvalidType       Code = "invalid_type"
	CodeMissing           Code = "missing_required_parameter"
	CodeInvalidValue      Code = "invalid_value"
	CodeContextLength     Code = "context_length_exceeded"
	CodeNotImplemented    Code = "not_implemented"
	CodeInvalidAPIKey     Code = "invalid_api_key"
	CodeForbidden         Code = "forbidden"
	CodeModelNotFound     Code = "model_not_found"
	CodeRouteNotFound     Code = "route_not_found"
	CodeMethodNotAllowed  Code = "method_not_allowed"
	CodeRequestTimeout    Code = "request_timeout"
	CodeBodyTooLarge      Code = "body_too_large"
	CodeUnsupportedMedia  Code = "unsupported_media_type"
	CodeHeadersTooLarge   Code = "headers_too_large"
	CodeClientClosed      Code = "client_closed_request"
	CodeInternal          Code = "internal_error"
	CodeEngineError       Code = "engine_error"
	CodeEngineRefused     Code = "engine_refused"
	CodeEngineBusy        Code = "engine_busy"
	CodeEngineTimeout     Code = "engine_timeout"
	CodeModelUnavailable  Code = "model_unavailable"
	CodeOverloaded        Code = "overloaded"
	CodeServerBusy        Code = "server_busy"
	CodeDraining          Code = "draining"
	CodeWorkerNotFound    Code = "worker_not_found"
	CodeWorkerUnavailable Code = "worker_unavailable"
)

type errorRow struct {
	status int
	kind   string // the type member
	retry  bool   // tell the client when to come back
	// flat is the message in the flat format, where clients know it by heart;
	// "…" stands for the ordinary message.
	flat string
}

// The types of OpenAI's errors.
const (
	typeInvalid    = "invalid_request_error"
	typeAuth       = "authentication_error"
	typePermission = "permission_error"
	typeServer     = "server_error"
	typeOverload   = "overloaded_error"
)

var errorTable = map[Code]errorRow{
	CodeInvalidJSON:       {400, typeInvalid, false, "Failed to parse the request body as JSON: …"},
	CodeInvalidType:       {400, typeInvalid, false, "Failed to deserialize the JSON body into the target type: …"},
	CodeMissing:           {400, typeInvalid, false, "Failed to deserialize the JSON body into the target type: …"},
	CodeInvalidValue:      {400, typeInvalid, false, "Validation: …"},
	CodeContextLength:     {400, typeInvalid, false, "…"},
	CodeWorkerNotFound:    {400, typeInvalid, false, "…"},
	CodeInvalidAPIKey:     {401, typeAuth, false, "…"},
	CodeForbidden:         {403, typePermission, false, "…"},
	CodeModelNotFound:     {404, typeInvalid, false, "Model not found"},
	CodeRouteNotFound:     {404, typeInvalid, false, "…"},
	CodeMethodNotAllowed:  {405, typeInvalid, false, "…"},
	CodeRequestTimeout:    {408, typeInvalid, false, "…"},
	CodeBodyTooLarge:      {413, typeInvalid, false, "…"},
	CodeUnsupportedMedia:  {415, typeInvalid, false, "…"},
	CodeHeadersTooLarge:   {431, typeInvalid, false, "…"},
	CodeClientClosed:      {499, typeInvalid, false, "…"},
	CodeInternal:          {500, typeServer, false, "…"},
	CodeNotImplemented:    {501, typeInvalid, false, "Validation: …"},
	CodeEngineError:       {502, typeServer, false, "…"},
	CodeEngineRefused:     {400, typeInvalid, false, "…"},
	CodeEngineBusy:        {503, typeOverload, true, "…"},
	CodeEngineTimeout:     {504, typeServer, false, "…"},
	CodeModelUnavailable:  {503, typeServer, true, "Model temporarily unavailable"},
	CodeWorkerUnavailable: {503, typeServer, true, "…"},
	CodeOverloaded:        {503, typeOverload, true, "ResourceExhausted: All workers are busy, please retry later"},
	CodeServerBusy:        {503, typeOverload, true, "…"},
	CodeDraining:          {503, typeServer, true, "Service is not ready"},
}

// row returns the code's row of the table. A code that is not in it is our own
// fault.
func (c Code) row() errorRow {
	if row, ok := errorTable[c]; ok {
		return row
	}
	return errorTable[CodeInternal]
}

// Error is a failure as a client sees it. It implements error.
type Error struct {
	Code    Code
	Param   string // the body field or header at fault, if one is
	Message string
	// Status replaces the table's status when not 0: the configured overload
	// status, or what an engine answered.
	Status int
	// RetryAfter is when to come back, where an engine said so, as it said it.
	RetryAfter string
	// Raw is an engine's own error body. Where it has the right shape it is sent
	// as it is.
	Raw []byte
	// Err is the cause; it is for logs and never sent.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus returns the status to answer with.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.row().status
}

// Retry reports whether the client should be told to come back later.
func (e *Error) Retry() bool { return e.Code.row().retry }

// ErrorFormat is the shape of error bodies.
type ErrorFormat uint8

// The formats: OpenAI's object under an error key, which the SDKs read, and
// Dynamo's flat object.
const (
	FormatOpenAI ErrorFormat = iota
	FormatDynamo
)

// AppendJSON appends the error body.
func (e *Error) AppendJSON(dst []byte, f ErrorFormat) []byte {
	if e.Raw != nil && f == FormatOpenAI {
		return append(dst, e.Raw...)
	}
	row := e.Code.row()
	if f == FormatDynamo {
		dst = append(dst, `{"message":`...)
		dst = AppendString(dst, flatMessage(row.flat, e.Message))
		dst = append(dst, `,"type":`...)
		dst = AppendString(dst, reason(e.HTTPStatus()))
		dst = append(dst, `,"code":`...)
		dst = strconv.AppendInt(dst, int64(e.HTTPStatus()), 10)
		return append(dst, '}')
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, row.kind)
	dst = append(dst, `,"param":`...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, e.Param)
	}
	dst = append(dst, `,"code":`...)
	dst = AppendString(dst, string(e.Code))
	return append(dst, "}}"...)
}

// AppendEvent appends what ends a stream that failed midway: an error frame that
// SDKs raise as an exception, and the end marker. The flat format keeps its
// clients' expectation of a bare error event with the message as a comment.
func (e *Error) AppendEvent(dst []byte, f ErrorFormat) []byte {
	if f == FormatDynamo {
		return AppendAnnotation(dst, "error", []byte(e.Message))
	}
	dst = AppendData(dst, e.AppendJSON(nil, f))
	return append(dst, Done...)
}

func flatMessage(pattern, message string) string {
	const hole = "…"
	if n := len(pattern) - len(hole); n >= 0 && pattern[n:] == hole {
		return pattern[:n] + message
	}
	return pattern
}

// reason returns the reason phrase of a status.
func reason(status int) string {
	if status == 499 {
		return "Client Closed Request"
	}
	if s := http.StatusText(status); s != "" {
		return s
	}
	return "UnknownError"
}
