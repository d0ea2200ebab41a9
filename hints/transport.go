package hints

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/trie"
)

// Transport is an [http.RoundTripper] that adds hints to the calls of models that pass
// through it, and leaves everything else alone: other requests, and all answers. Make one
// with [NewTransport]. It is safe for concurrent use.
type Transport struct {
	options
	base      http.RoundTripper
	prefixes  *counter
	functions *counter
	stats     counts

	mu     sync.Mutex
	warned map[string]bool // what was logged, so that it is logged once
}

// NewTransport returns a transport that sends requests through base, with hints;
// [http.DefaultTransport] if base is nil.
func NewTransport(base http.RoundTripper, opts ...Option) *Transport {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &Transport{options: defaultOptions(), base: base, warned: map[string]bool{}}
	for _, o := range opts {
		o(&t.options)
	}
	t.prefixes, t.functions = newCounter(t.maxPrefixes), newCounter(t.maxPrefixes)
	t.loadTrie()
	t.announce()
	return t
}

// announce says how the transport is set up, to a logger that it was given for that.
func (t *Transport) announce() {
	if !t.verbose {
		return
	}
	t.logger.LogAttrs(context.Background(), slog.LevelInfo, "agent hints are on",
		slog.String("polarity", string(t.polarity)),
		slog.String("carrier", string(t.carrier)),
		slog.String("cache_pin", string(t.pin)),
		slog.Bool("predictions", t.lookup != nil))
	if t.pin != NoPin && t.carrier == NAT {
		pinNotice.Do(func() {
			t.logger.LogAttrs(context.Background(), slog.LevelWarn,
				"cache_control has an effect in SGLang newer than 0.5.9 with a hierarchical cache; other engines ignore it")
		})
	}
}

// pinNotice has it said once in a program.
var pinNotice sync.Once

// CloseIdleConnections closes those of the transport below, if it has any.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends the request, with hints if it is one that they are for. Under the closed
// policy a hint that is out of bounds is an error, and nothing is sent.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.matches(req) {
		t.stats.untouched[Unmatched].Add(1)
		return t.base.RoundTrip(req)
	}
	out, call, err := t.prepare(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := t.base.RoundTrip(out)
	call.answered(resp, err)
	return resp, err
}

// Takes reports whether [Transport.RoundTrip] would read the body of a request to add hints
// to it, going by its header: it matches, and nothing about it forbids that.
func (t *Transport) Takes(req *http.Request) bool {
	return t.matches(req) && t.passes(req) == hinted
}

// matches asks the matcher. One that panics matches nothing.
func (t *Transport) matches(req *http.Request) (ok bool) {
	defer func() {
		if e := recover(); e != nil {
			ok = false
			t.warnOnce("match", "the matcher of requests failed", slog.Any("error", e))
		}
	}()
	return t.match(req)
}

// prepare returns the request to send in place of req, which it does not change, and what
// is to be recorded of the call, nil if nothing is. After an error nothing is to be sent.
func (t *Transport) prepare(req *http.Request) (*http.Request, *recording, error) {
	s := scopeOf(req.Context())
	rec := s.recorder
	if rec == nil {
		rec = t.recorder
	}
	body, plain, why, err := t.take(req)
	if err != nil {
		return nil, nil, err
	}
	var o openai.Object
	if why == hinted {
		if o, err = openai.ParseObject(body); err != nil {
			why = NotJSON
		}
	}
	var v values
	var pieces openai.Pieces
	if why == hinted {
		if v, err = t.hints(s, isRetry(req)); err != nil {
			return nil, nil, err
		}
		if pieces, err = v.inject(&o, t.carrier, t.pinOf(&v)); err != nil { // an nvext of absurd size
			t.uncount(s, v.prefix, v.at)
			why = Large
		}
	}
	call := rec.begin(s, v.prefix, &o)
	if why == hinted {
		t.stats.hinted.Add(1)
		return withBody(req, pieces), call, nil
	}
	t.stats.untouched[why].Add(1)
	if plain == nil {
		plain = withBody(req, openai.Pieces{body})
	}
	return plain, call, nil
}

// hints works out what to say of a call and counts it. With again it was sent before.
func (t *Transport) hints(s *scope, again bool) (values, error) {
	prefix := shortID(s.prefixID())
	if s.stray() {
		t.stats.runless.Add(1)
		t.warnOnce("run", "calls outside of any run share one prefix id; begin a run with hints.WithRun, or name one in a header")
	}
	at := t.count(s, prefix, again)
	v := t.expect(s, at, t.find(s.path, at.function))
	v.prefix = prefix
	if err := t.settle(&v); err != nil {
		t.uncount(s, prefix, at)
		return values{}, err
	}
	return v, nil
}

// pinOf returns what to ask of the cache for a call.
func (t *Transport) pinOf(v *values) CachePin {
	if v.last || t.mode == FirstOnly && v.at.prefix != 1 {
		return NoPin
	}
	return t.pin
}

// functionKey names what the calls of a function are counted by: the invocation, the run
// outside of any function, the prefix outside of any run.
func (s *scope) functionKey(prefix string) string {
	switch {
	case s.counted != "":
		return s.counted
	case s.run != "":
		return "run\x00" + shortID(s.run)
	}
	return "prefix\x00" + prefix
}

// count counts a call in and returns its place.
func (t *Transport) count(s *scope, prefix string, again bool) place {
	a := s.attempts
	if a == nil {
		return t.countAnew(s, prefix, again)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.at[t]; ok {
		t.stats.retried.Add(1)
		return at
	}
	at := t.countAnew(s, prefix, again)
	if a.at == nil {
		a.at = make(map[*Transport]place)
	}
	a.at[t] = place{prefix: at.prefix, function: at.function}
	return at
}

func (t *Transport) countAnew(s *scope, prefix string, again bool) (at place) {
	if again {
		t.stats.retried.Add(1)
	}
	at.prefix, at.newPrefix = t.prefixes.next(prefix, again)
	at.function = at.prefix
	if t.compat == "" && t.lookup != nil {
		at.function, at.newFunction = t.functions.next(s.functionKey(prefix), again)
	}
	return at
}

// uncount takes a call back that is not sent, unless it was counted for an earlier attempt.
func (t *Transport) uncount(s *scope, prefix string, at place) {
	if at.newPrefix {
		t.prefixes.undo(prefix, at.prefix)
		if a := s.attempts; a != nil {
			a.mu.Lock()
			delete(a.at, t)
			a.mu.Unlock()
		}
	}
	if at.newFunction {
		t.functions.undo(s.functionKey(prefix), at.function)
	}
}

// find returns the prediction for a call, nil if there is none. A lookup that panics has
// none.
func (t *Transport) find(path []string, call int) (p *trie.Prediction) {
	if t.lookup == nil {
		return nil
	}
	defer func() {
		if e := recover(); e != nil {
			p = nil
			t.stats.lookupFailed.Add(1)
			t.warnOnce("lookup", "the lookup of a prediction failed", slog.Any("error", e))
		}
	}()
	find := t.lookup.Find
	if plain, ok := t.lookup.(plainLookup); ok && t.compat != "" {
		find = plain.FindPlain
	}
	p, ok := find(path, call)
	if !ok || p == nil {
		t.stats.unpredicted.Add(1)
		return nil
	}
	t.stats.predicted.Add(1)
	return p
}

// headerRetryCount is set by the SDKs of OpenAI and Anthropic, to 0 for a first attempt.
const headerRetryCount = "X-Stainless-Retry-Count"

// isRetry reports whether a request was sent before: by an SDK that says so, or to where
// it was redirected from.
func isRetry(req *http.Request) bool {
	n := req.Header.Get(headerRetryCount)
	return n != "" && n != "0" || req.Response != nil
}

// warnOnce logs something the first time.
func (t *Transport) warnOnce(key, text string, attrs ...slog.Attr) {
	t.mu.Lock()
	said := t.warned[key]
	t.warned[key] = true
	t.mu.Unlock()
	if !said {
		t.logger.LogAttrs(context.Background(), slog.LevelWarn, text, attrs...)
	}
}
