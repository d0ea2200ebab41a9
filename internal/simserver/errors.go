package simserver

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// apiError is an answer that says what was wrong with a request.
type apiError struct {
	status  int
	message string
	param   string // the field at fault, if one is
	// tokens and context are set where a prompt of so many is too long for that
	// context.
	tokens, context int
	route           bool // there is no such route, or not with that method
}

func (e *apiError) Error() string { return e.message }

// badField says that a field is not what it should be.
func badField(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, message: param + ": " + fmt.Sprintf(format, args...), param: param}
}

// errorType is the type member of an error body, named as vLLM names it.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusMethodNotAllowed:
		return "MethodNotAllowedError"
	case http.StatusRequestEntityTooLarge:
		return "RequestTooLargeError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableError"
	default:
		return "InternalServerError"
	}
}

func writeError(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.status, appendError(nil, e))
}

// appendError appends the error as an object.
func appendError(b []byte, e *apiError) []byte {
	b = append(b, `{"error":{"message":`...)
	b = openai.AppendString(b, e.message)
	b = append(b, `,"type":`...)
	b = openai.AppendString(b, errorType(e.status))
	b = append(b, `,"param":`...)
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, e.param)
	}
	b = append(b, `,"code":`...)
	b = strconv.AppendInt(b, int64(e.status), 10)
	return append(b, "}}"...)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // a client that went away is no concern of ours
}

// detail returns what FastAPI, on which most engines are built, answers about routes
// that it does not have; empty for other errors.
func detail(e *apiError) string {
	if !e.route {
		return ""
	}
	return `{"detail":"` + http.StatusText(e.status) + `"}`
}

// appendModelCard appends the beginning of a model's entry, made when it is asked for.
func appendModelCard(b []byte, name, owner string) []byte {
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, name)
	return fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"%s"`, time.Now().Unix(), owner)
}
