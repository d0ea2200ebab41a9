package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/detect"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
)

// exam is the examination of one engine. It is used by one goroutine at a time.
type exam struct {
	cfg    *Config
	target Target
	url    string // canonical
	places []string
	rng    *rand.Rand
	took   time.Duration // by meet

	base     *detect.Engine
	engine   engine.Engine // the adapter
	info     *engine.Info  // nil if the engine could not be reached
	model    engine.Model  // that prompts are for
	ranks    int
	tokens   TokenSource
	disputed bool // its sockets may be another's
	same     bool // it is an engine that was looked at before

	ear      *ear // nil if nothing is listened to
	silent   bool // the engine gives no tokens of text
	probes   []*probe
	again    *answer // to the first of them, sent once more
	salted   *answer // the same with a salt
	saltErr  error
	salt     string
	saltSeen *bool
	chat     *answer
	chatErr  error
	chatSent []byte
	lost     []uint64 // batches that a replay socket has and that did not arrive, by rank
	replays  bool     // all replay sockets answer
	compared TokensData
	refusal  error          // why the engine gave no tokens, the last time
	unmade   error          // why there are none here, the first time
	apart    bool           // the engine leaves accents apart
	skew     *time.Duration // of the engine's clock, by the header of an answer

	checks []Check
}

func (e *exam) add(c Check) { e.checks = append(e.checks, c) }

func (e *exam) ok(name string, data any, format string, args ...any) {
	e.add(Check{Name: name, Status: OK, Text: fmt.Sprintf(format, args...), Data: data})
}

func (e *exam) skip(name, format string, args ...any) {
	e.add(Check{Name: name, Status: Skip, Text: fmt.Sprintf(format, args...)})
}

func (e *exam) warn(name, advice string, data any, format string, args ...any) {
	e.add(Check{Name: name, Status: Warn, Text: fmt.Sprintf(format, args...), Advice: advice, Data: data})
}

func (e *exam) fail(name, advice string, data any, format string, args ...any) {
	e.add(Check{Name: name, Status: Fail, Text: fmt.Sprintf(format, args...), Advice: advice, Data: data})
}

// report returns what was found.
func (e *exam) report() Engine {
	out := Engine{URL: e.url, Models: []string{}, Checks: e.checks}
	if e.info != nil {
		out.Kind, out.Version = e.info.Kind, e.info.Version
		for _, m := range e.info.Models {
			out.Models = append(out.Models, m.ID)
		}
	}
	slices.SortStableFunc(out.Checks, func(a, b Check) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	return out
}

// meet finds out whether the engine is there, and what it is.
func (e *exam) meet(ctx context.Context) {
	start := time.Now()
	defer func() { e.took = time.Since(start) }()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	if e.target.Err != nil {
		e.fail(Reach, "", nil, "%v", e.target.Err)
		return
	}
	var err error
	if e.base, err = e.open(detect.Auto); err != nil {
		e.fail(Reach, "", nil, "%v", err)
		return
	}
	e.places = places(ctx, e.url)
	if !e.reach(ctx) {
		return
	}
	info, err := e.base.Identify(ctx)
	if err != nil {
		e.fail(Reach, "", nil, "%v", err)
		return
	}
	e.info, e.engine = info, e.base
	e.kind(ctx)
	if e.info.Engine != nil {
		e.engine = e.info.Engine
	}
	e.model = e.info.Models[0]
	for _, m := range e.info.Models {
		if m.Parent == "" {
			e.model = m
			break
		}
	}
	e.ranks = max(cmp.Or(e.target.Ranks, e.model.Ranks), 1)
}

// open returns the engine as one of a kind.
func (e *exam) open(kind string) (*detect.Engine, error) {
	return detect.New(openaihttp.Config{URL: e.target.URL, APIKey: e.target.APIKey}, detect.Options{Kind: kind, Events: e.target.Events})
}

// notHTTP reports whether something else than an answer came. Its bytes, which the error
// may quote, say nothing to a person. The second wording is for what came before the
// request was sent.
func notHTTP(err error) bool {
	text := err.Error()
	return strings.Contains(text, "malformed HTTP") || strings.Contains(text, "readLoopPeekFail")
}

// reach reports whether the engine answers.
func (e *exam) reach(ctx context.Context) bool {
	start := time.Now()
	status, _, err := e.base.Get(ctx, "/v1/models")
	latency := time.Since(start)
	switch {
	case err != nil && notHTTP(err):
		e.fail(Reach, "correct the URL", nil, "no answer: get %s/v1/models: not HTTP", e.url)
	case err != nil:
		e.fail(Reach, "start the engine, or correct the URL", nil, "no answer: %v", err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.fail(Reach, "set its api_key, or STATOR_ENGINE_API_KEY", nil, "the engine does not let us in: /v1/models answered status %d", status)
	case status == http.StatusServiceUnavailable:
		e.fail(Reach, "wait until it has loaded its model", nil, "the engine is not ready: /v1/models answered status %d", status)
	case status != http.StatusOK:
		e.fail(Reach, "expected the base URL of a server with an OpenAI-style API", nil, "/v1/models answered status %d", status)
	default:
		e.ok(Reach, ReachData{LatencyMS: ms(latency)}, "answered in %s", short(latency))
		return true
	}
	return false
}

// kind holds the kind that is configured against the one found. The engine is looked at
// as what it is, unless that is not known.
func (e *exam) kind(ctx context.Context) {
	configured := e.target.Kind
	if configured == detect.Auto {
		configured = ""
	}
	data := KindData{Kind: e.info.Kind, Version: e.info.Version, Configured: configured}
	name := strings.TrimSpace(e.info.Kind + " " + e.info.Version)
	switch configured {
	case "", e.info.Kind:
		e.ok(Kind, data, "%s", name)
		return
	case engine.OpenAI:
		e.warn(Kind, "leave kind out", data, "configured as %s, but it is %s: its events, load and priorities are not used", configured, name)
		return
	}
	if e.info.Kind != engine.OpenAI {
		e.fail(Kind, "leave kind out, or correct it", data, "configured as %s, but it is %s; looked at as that", configured, name)
		return
	}
	base, err := e.open(configured)
	if err == nil {
		var info *engine.Info
		if info, err = base.Identify(ctx); err == nil {
			e.base.Close()
			e.base, e.info, e.engine = base, info, base
		}
	}
	if err != nil {
		e.fail(Kind, "leave kind out, or correct it", data, "configured as %s: %v", configured, err)
		return
	}
	e.warn(Kind, "see that nothing between hides its routes", data, "configured as %s, and nothing that it says shows it", configured)
}

// run looks at an engine that was met. Those of before may be the same.
func (e *exam) run(ctx context.Context, before []*exam) {
	if e.info == nil {
		return
	}
	defer e.base.Close()
	ctx, cancel := context.WithTimeout(ctx, max(e.cfg.Timeout-e.took, time.Second))
	defer cancel()
	if err := e.base.Probe(ctx); err != nil {
		e.checks = slices.DeleteFunc(e.checks, func(c Check) bool { return c.Name == Reach })
		e.fail(Reach, "see the engine's log", nil, "the engine says that it is not well: %v", err)
	}
	if e.duplicate(ctx, before) {
		return
	}
	e.tokens = e.cfg.Tokens(ctx, e.model)
	if k := e.info.Kind; e.tokens == (TokenSource{}) && (k == engine.VLLM || k == engine.SGLang || k == engine.LlamaCpp) {
		e.tokens.Engine = true // as a server does that is not told otherwise
	}
	e.models()
	e.load(ctx)
	e.priority()
	e.compareTokens(ctx)
	e.listen(ctx)
	if e.ear != nil {
		defer e.ear.close()
	}
	if e.cfg.NoRequests {
		for _, name := range []string{Answer, CachedTokens, Usage, Cancel, Salt} {
			e.skip(name, "no requests were sent")
		}
	} else {
		e.ask(ctx)
		e.answered()
		e.cached()
		e.usage()
		e.cancel(ctx)
		e.refresh(ctx)
	}
	e.sizes()
	e.judgeTokens()
	e.judgeEvents(ctx)
	if !e.cfg.NoRequests {
		e.isolation()
	}
	e.clock()
}

// duplicate reports whether the engine is one of those before.
func (e *exam) duplicate(ctx context.Context, before []*exam) bool {
	const advice = "name each engine once: under two names its load and its cache are taken for those of two"
	for _, other := range before {
		if other.same || other.info == nil {
			continue
		}
		data := DuplicateData{Of: other.url}
		if e.sameAddress(other) {
			e.same = true
			e.fail(Duplicate, advice, data, "the same address as %s", other.url)
			return true
		}
		if len(other.probes) == 0 || other.probes[0].answer == nil {
			e.warn(Duplicate, advice, data, "says all the same about itself as %s, the time of its start included", other.url)
			return false
		}
		a, err := e.send(ctx, 0, other.probes[0].text, "")
		switch {
		case err == nil && a.usage != nil && a.usage.HasCached && a.usage.Cached > 0:
			e.same = true
			e.fail(Duplicate, advice, data, "the same engine as %s: a prompt that was sent there is in its cache", other.url)
			return true
		case err != nil || a.usage == nil || !other.reportsCached():
			e.warn(Duplicate, advice, data, "says all the same about itself as %s, the time of its start included", other.url)
			return false
		}
	}
	e.ok(Duplicate, nil, "no other of the engines")
	return false
}

// unanswered explains an error of a request.
func unanswered(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}

// wait calls done until it reports true, and reports whether it did in time.
func wait(ctx context.Context, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return done()
		}
	}
	return true
}

// ms returns a time in milliseconds, to a hundredth.
func ms(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// short returns a time for people.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 100*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
