package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/trie"
)

// The targets of hints.
const (
	validLimit  = 0.3 // of the time of json.Valid, on a body of source files
	copyLimit   = 3.0 // of the time of a copy, on a body of prose
	prefixLimit = 1.1 // of the heap after a tenth of the prefixes
)

// hintScale is how much is measured.
type hintScale struct {
	body     int // bytes
	calls    int // requests in a turn
	prefixes int
}

var hintScaleFull = hintScale{body: 200_000, calls: 64, prefixes: 1_000_000}

// measureHints measures what an agent pays for hints: adding them to a long request, up to
// where the last byte was handed to the connection, and the memory that a client keeps
// after a million runs.
func measureHints(ctx context.Context, o options, r *report) error {
	return measureHintsOf(ctx, o, r, hintScaleFull)
}

func measureHintsOf(ctx context.Context, o options, r *report, s hintScale) error {
	bodies, err := hintBodies(ctx, s.body)
	if err != nil {
		return err
	}
	for _, b := range bodies {
		o.progress("hints: %d KB of %s", len(b.data)/1000, b.name)
		if err := measureInjection(o, r, b, s.calls); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	o.progress("hints: %d prefixes", s.prefixes)
	return measurePrefixes(ctx, r, s.prefixes)
}

// hintBodies returns the requests that hints are added to.
func hintBodies(ctx context.Context, size int) ([]*hintBody, error) {
	p, err := readPassages(ctx)
	if err != nil {
		return nil, err
	}
	files, err := fileChat(p, size)
	if err != nil {
		return nil, err
	}
	files.baseline, files.limit = "json.Valid", validLimit
	files.simple = func() error {
		if !json.Valid(files.data) {
			return errors.New("the request is no JSON")
		}
		return nil
	}
	prose, err := proseChat(p, size)
	if err != nil {
		return nil, err
	}
	prose.baseline, prose.limit = "a copy", copyLimit
	prose.simple = func() error {
		if len(bytes.Clone(prose.data)) != len(prose.data) {
			return errors.New("the copy is not as long as the request")
		}
		return nil
	}
	return []*hintBody{files, prose}, nil
}

// measureInjection compares adding hints to a request with something simple that is done
// with its body, and with decoding and encoding it.
func measureInjection(o options, r *report, b *hintBody, calls int) error {
	c, err := newHintCaller(b.data)
	if err != nil {
		return err
	}
	took, err := inTurns(o.rounds, calls, b.simple, c.call)
	if err != nil {
		return err
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = took[1][i] / took[0][i]
	}
	what := fmt.Sprintf("%d KB of %s", len(b.data)/1000, b.name)
	r.ratio("hints added to "+what+", to "+b.baseline, seconds(took[0]), seconds(took[1]), ratios, b.limit)

	plain, err := inTurns(min(o.rounds, 3), max(1, calls/8), func() error { _, err := decodeAndAdd(b.data); return err })
	if err != nil {
		return err
	}
	var callErr error
	n, size := allocated(calls, func() { callErr = errors.Join(callErr, c.call()) })
	r.note("hints: %s, %.1f %% of it in escapes: %s, %.0f allocations of %.2f times the body; by decoding and encoding %s, %.0f times as long",
		what, 100*b.escaped, speed(len(b.data), median(took[1])), n, size/float64(len(b.data)),
		seconds(plain[0]), median(plain[0])/median(took[1]))
	return callErr
}

// decodeAndAdd adds hints as one would without much thought, and loses the order of
// members and the digits of large numbers.
func decodeAndAdd(body []byte) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	m["nvext"] = map[string]any{"agent_hints": map[string]any{"prefix_id": "run-d1", "osl": 512, "priority": 2}}
	return json.Marshal(m)
}

// hintCaller sends one request again and again, as the SDKs of OpenAI and Anthropic make
// it: from memory, so that its body can be had once more.
type hintCaller struct {
	request   *http.Request
	sink      *hintSink
	transport *hints.Transport
}

// newHintCaller returns one that was seen to send the body with hints and no other change.
func newHintCaller(body []byte) (*hintCaller, error) {
	ctx := hints.EnterFunction(hints.WithRun(context.Background(), ""), "agent")
	c := &hintCaller{sink: new(hintSink)}
	c.transport = hints.NewTransport(c.sink, hints.WithLogger(slog.New(slog.DiscardHandler)))
	var err error
	if c.request, err = newHintRequest(ctx, body); err != nil {
		return nil, err
	}
	var sent bytes.Buffer
	c.sink.to = &sent
	err = c.call()
	c.sink.to = nil
	if err != nil {
		return nil, err
	}
	return c, checkHinted(body, sent.Bytes())
}

func newHintRequest(ctx context.Context, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:8000/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Stainless-Retry-Count", "0")
	return req, nil
}

// call sends the request.
func (c *hintCaller) call() error {
	req := *c.request
	var err error
	if req.Body, err = req.GetBody(); err != nil {
		return err
	}
	_, err = c.transport.RoundTrip(&req)
	return err
}

// checkHinted returns an error unless sent is body with nvext after its last member.
func checkHinted(body, sent []byte) error {
	rest, ok := bytes.CutPrefix(sent, body[:len(body)-1])
	if !ok {
		return errors.New("what was sent does not begin as the request does")
	}
	var added struct {
		Ext struct {
			Hints struct {
				PrefixID string `json:"prefix_id"`
			} `json:"agent_hints"`
		} `json:"nvext"`
	}
	member, ok := bytes.CutPrefix(rest, []byte(","))
	if err := json.Unmarshal(append([]byte("{"), member...), &added); !ok || err != nil || added.Ext.Hints.PrefixID == "" {
		return fmt.Errorf("expected nvext with hints to be added, got %q: %w", rest, err)
	}
	return nil
}

// hintSink stands for the connection. It takes a body as net/http does, which has it write
// itself, and does nothing with it unless to is set.
type hintSink struct {
	to   io.Writer
	size int64 // of the last body
}

var hintAnswer = http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

// RoundTrip implements [http.RoundTripper].
func (s *hintSink) RoundTrip(req *http.Request) (*http.Response, error) {
	s.size = 0
	body, ok := req.Body.(io.WriterTo)
	if !ok {
		return nil, fmt.Errorf("body: expected one that can write itself, got a %T", req.Body)
	}
	if _, err := body.WriteTo(s); err != nil {
		return nil, err
	}
	if s.size != req.ContentLength {
		return nil, fmt.Errorf("body: expected %d bytes, got %d", req.ContentLength, s.size)
	}
	return &hintAnswer, req.Body.Close()
}

// Write takes a part of a body.
func (s *hintSink) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	if s.to != nil {
		return s.to.Write(p)
	}
	return len(p), nil
}

// measurePrefixes makes one short call in each of many runs through one client, and
// compares the heap at the end with that after the first tenth. Predictions are on, so
// that invocations are counted as well as prefixes.
func measurePrefixes(ctx context.Context, r *report, n int) error {
	start := heap()
	sink := new(hintSink)
	t := hints.NewTransport(sink, hints.WithLogger(slog.New(slog.DiscardHandler)), hints.WithLookup(new(trie.Trie)))
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`)
	var early float64
	began := time.Now()
	for i := range n {
		if i == n/10 {
			early = float64(heap() - start)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		req, err := newHintRequest(hints.EnterFunction(hints.WithRun(ctx, ""), "agent"), body)
		if err != nil {
			return err
		}
		if _, err := t.RoundTrip(req); err != nil {
			return err
		}
	}
	took := time.Since(began)
	late := float64(heap() - start)
	stats := t.Stats()
	runtime.KeepAlive(t)
	if stats.Hinted != uint64(n) {
		return fmt.Errorf("%d requests: expected all to get hints, got %d", n, stats.Hinted)
	}
	r.rows = append(r.rows, row{
		what:     fmt.Sprintf("heap of a client after %s prefixes, to after %s", millions(n), millions(n/10)),
		baseline: fmt.Sprintf("%.2f MB", early/1e6),
		stator:   fmt.Sprintf("%.2f MB", late/1e6),
		ratio:    fmt.Sprintf("%.2f", late/early),
		target:   fmt.Sprintf("≤ %.1f×", prefixLimit),
		ok:       late/early <= prefixLimit,
	}, row{
		what:   fmt.Sprintf("prefixes counted after %s", millions(n)),
		stator: fmt.Sprint(stats.Prefixes),
		target: fmt.Sprintf("≤ %d", hints.DefaultMaxPrefixes),
		ok:     stats.Prefixes <= hints.DefaultMaxPrefixes,
	})
	r.note("hints: a request of %d B in a run of its own takes %s, making both included", len(body), micros(took/time.Duration(n)))
	return nil
}

// allocated returns how many allocations a call of f makes, and of how many bytes, on
// average over n.
func allocated(n int, f func()) (allocations, size float64) {
	f()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}
