package openaihttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// askTimeout is how long a server may take over a question that it need not answer.
const askTimeout = 2 * time.Second

// Answer is what came of a question that a server need not answer.
type Answer uint8

// What may come of one.
const (
	// Unanswered: nothing came in time, or the server could not say. What it said
	// before may still be so.
	Unanswered Answer = iota
	// Absent: the server has no such document, or something else in its place.
	Absent
	// Told: the document came.
	Told
)

// AskFor gets a document that a server may not have, within two seconds. The document
// is nil unless it was told.
func (e *Engine) AskFor(ctx context.Context, path string) ([]byte, Answer) {
	return e.askFor(ctx, askTimeout, path)
}

func (e *Engine) askFor(ctx context.Context, limit time.Duration, path string) ([]byte, Answer) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	status, body, err := e.Get(ctx, path)
	switch {
	case err != nil:
		return nil, Unanswered
	case status == http.StatusOK:
		return body, Told
	case status == http.StatusNotImplemented: // llama.cpp's, for what it was started without
		return nil, Absent
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return nil, Unanswered
	default:
		return nil, Absent
	}
}

// lenient makes nothing of an error that is about a single member.
func lenient(err error) error {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return nil
	}
	return err
}

// Int is an integer as servers write it: a number, possibly with a fraction or far too
// large, or one in quotes. Anything else, a null for example, is 0. What is decoded is
// within 2^53 of 0.
type Int int64

// UnmarshalJSON implements [json.Unmarshaler]. It never fails.
func (n *Int) UnmarshalJSON(b []byte) error {
	*n = ParseInt(string(bytes.Trim(b, `"`)))
	return nil
}

// ParseInt returns the integer that a server means by a text, as [Int] has it.
func ParseInt(text string) Int {
	f, err := strconv.ParseFloat(text, 64)
	if (err != nil && !errors.Is(err, strconv.ErrRange)) || math.IsNaN(f) {
		return 0
	}
	const most = 1 << 53
	return Int(min(max(f, -most), most))
}

// Share returns a share of something as servers write it, within 0 and 1; what is no
// number is 0.
func Share(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return min(max(f, 0), 1)
}

// Count returns a number of things as servers write it, at least 0; what is no number
// is 0.
func Count(f float64) int {
	if math.IsNaN(f) {
		return 0
	}
	return int(min(max(f, 0), math.MaxInt32))
}

// PostStream is Post for an answer of any length, which the caller reads and closes.
func (e *Engine) PostStream(ctx context.Context, path string, doc []byte) (status int, body io.ReadCloser, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, below(e.base, path).String(), bytes.NewReader(doc))
	if err != nil {
		return 0, nil, err
	}
	if doc != nil {
		req.Header["Content-Type"] = jsonType
	}
	if e.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.apiKey)
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("post %s: %w", req.URL, err)
	}
	return resp.StatusCode, resp.Body, nil
}

// OneToken has the server compute one token for a model. An answer that refuses the
// request, such as one for a model that does not write, is no error: a server that
// says so is well.
func (e *Engine) OneToken(ctx context.Context, model string) error {
	doc := append([]byte(`{"model":`), openai.AppendString(nil, model)...)
	doc = append(doc, `,"prompt":"a","max_tokens":1,"temperature":0}`...)
	status, _, err := e.Post(ctx, "/v1/completions", doc)
	if err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	if status >= http.StatusInternalServerError {
		return fmt.Errorf("canary: %s/v1/completions answered status %d", e.base, status)
	}
	return nil
}

// maxRefusal is how much of an error is read to find out what was refused.
const maxRefusal = 64 << 10

// SendOptional is Send with one more edit, which the server may not understand: if it
// finds fault with the request and names the edit's key, the request is sent again
// without. Where that helps, refused is set, and as long as it is all others go without
// from the start.
func (e *Engine) SendOptional(ctx context.Context, t engine.Target, r *engine.Request, edits []openai.Edit, optional openai.Edit, refused *atomic.Bool) (*engine.Response, error) {
	if refused.Load() {
		return e.Send(ctx, t, r, edits)
	}
	resp, err := e.Send(ctx, t, r, append(edits[:len(edits):len(edits)], optional))
	if err != nil || resp.Status != http.StatusBadRequest && resp.Status != http.StatusUnprocessableEntity {
		return resp, err
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err == nil && bytes.Contains(said, []byte(optional.Key)) {
		resp.Body.Close()
		resp, err = e.Send(ctx, t, r, edits)
		if err == nil && resp.Status/100 == 2 {
			refused.Store(true)
		}
		return resp, err
	}
	rest := io.MultiReader(bytes.NewReader(said), resp.Body)
	if err != nil {
		rest = io.MultiReader(bytes.NewReader(said), failed{err})
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{rest, resp.Body}
	return resp, nil
}

// failed is a reader that has failed.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
