package indexserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// failure is an error as the client sees it.
type failure struct {
	status  int
	field   string // the member, parameter or header at fault, if one is
	message string
	err     error // what is behind it, if anything
}

func (f *failure) Error() string {
	if f.field != "" {
		return f.field + ": " + f.message
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.err }

// invalid returns a 400 about a field.
func invalid(field, format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, field: field, message: fmt.Sprintf(format, args...)}
}

// fail returns a failure that is about no field.
func fail(status int, format string, args ...any) *failure {
	return &failure{status: status, message: fmt.Sprintf(format, args...)}
}

// at puts a step in front of the path to what is wrong.
func at(step string, err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return &failure{status: http.StatusBadRequest, field: step, message: clip(err.Error()), err: err}
	}
	inner := *f
	switch {
	case f.field == "":
		inner.field = step
	case f.field[0] == '[':
		inner.field = step + f.field
	default:
		inner.field = step + "." + f.field
	}
	return &inner
}

// element is the step to an element of an array.
func element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// clip shortens a message. How it begins and ends says most.
func clip(s string) string {
	const half = 150
	if len(s) <= 2*half {
		return s
	}
	return strings.ToValidUTF8(s[:half], "") + " … " + strings.ToValidUTF8(s[len(s)-half:], "")
}

// errorBody is the JSON form of a failure.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// fail answers with an error, or breaks the answer off that has begun.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *failure
	if !errors.As(err, &f) {
		s.log.Error("request failed", "path", r.URL.Path, "error", err)
		f = fail(http.StatusInternalServerError, "internal error")
	}
	if w.Header().Get("Content-Type") != "" {
		panic(http.ErrAbortHandler)
	}
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, f.status, errorBody{errorDetail{Message: f.Error(), Field: f.field}})
}

// reply answers with a JSON document.
func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	replyRaw(w, status, append(body, '\n'))
}

// replyRaw answers with JSON that is written already.
func replyRaw(w http.ResponseWriter, status int, body []byte) {
	// A recorder in a test has no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever does not listen misses it
}
