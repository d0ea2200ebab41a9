package doctor

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/tokenize"
)

// Config says what to look at and how. Only Targets must be set.
type Config struct {
	Targets []Target
	// Tokens returns where the tokens of a model's prompts come from. It may be called
	// concurrently. Nil means that nothing is configured.
	Tokens func(ctx context.Context, m engine.Model) TokenSource
	// Timeout bounds the time that one engine takes; default 30 s.
	Timeout time.Duration
	// NoRequests sends no prompts, so that engines compute nothing, and takes no events
	// away from engines that hand them out once.
	NoRequests bool
	// Seed decides the prompts. They must be new to an engine, so that it must be
	// another each time.
	Seed uint64

	// patience is how long something that must happen soon is waited for; default 3 s.
	patience time.Duration
}

// Target is an engine and what is configured for it. Zero is what the engine says.
type Target struct {
	URL, APIKey string
	// Kind is one of the kinds of engines; empty or auto has it found out.
	Kind                          string
	Events                        eventsocket.Options
	Ranks, BlockSize, TotalBlocks int
	// Err, if set, is why the engine cannot be looked at.
	Err error
}

// TokenSource is where the tokens of a model's prompts come from. The zero value is
// the engine if it is of a kind that gives them, and otherwise nowhere.
type TokenSource struct {
	// Name is what was configured; empty for nothing.
	Name string
	// Local makes them in this process, Err is why that cannot be had.
	Local tokenize.Model
	Err   error
	// Engine asks the engine.
	Engine bool
}

// Examine looks at all engines at once and reports what it found. It does not fail: an
// engine that does not answer is a finding. When ctx ends, what is left is cut short.
func Examine(ctx context.Context, cfg Config) *Report {
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.patience = cmp.Or(cfg.patience, 3*time.Second)
	if cfg.Tokens == nil {
		cfg.Tokens = func(context.Context, engine.Model) TokenSource { return TokenSource{} }
	}
	exams := make([]*exam, len(cfg.Targets))
	for i, t := range cfg.Targets {
		exams[i] = &exam{
			cfg: &cfg, target: t, url: canonical(t.URL), rng: rand.New(rand.NewPCG(cfg.Seed, uint64(i))),
		}
	}
	var wg sync.WaitGroup
	for _, e := range exams {
		wg.Go(func() { e.meet(ctx) })
	}
	wg.Wait()
	dispute(exams)
	for _, group := range alike(exams) {
		wg.Go(func() {
			for i, e := range group {
				e.run(ctx, group[:i])
			}
		})
	}
	wg.Wait()
	report := &Report{Engines: make([]Engine, len(exams))}
	for i, e := range exams {
		report.Engines[i] = e.report()
	}
	report.sum()
	return report
}

// canonical returns a URL as engines are told apart by it.
func canonical(raw string) string {
	u, err := openaihttp.Normalize(raw)
	if err != nil {
		return raw
	}
	return u.String()
}

// alike groups engines that may be the same, in their order. Those of a group are
// looked at one after another; the others do not disturb each other.
func alike(exams []*exam) (groups [][]*exam) {
next:
	for _, e := range exams {
		for i, g := range groups {
			if slices.ContainsFunc(g, func(other *exam) bool { return e.sameAddress(other) || e.sameLife(other) }) {
				groups[i] = append(g, e)
				continue next
			}
		}
		groups = append(groups, []*exam{e})
	}
	return groups
}

// sameAddress reports whether two URLs lead to the same place.
func (e *exam) sameAddress(other *exam) bool {
	if e.url == other.url {
		return true
	}
	return slices.ContainsFunc(e.places, func(p string) bool { return slices.Contains(other.places, p) })
}

// sameLife reports whether all that two engines say about themselves is the same.
func (e *exam) sameLife(other *exam) bool {
	// llama.cpp's lives are counted here and not by it.
	if e.info == nil || other.info == nil || e.info.Life == "" || e.info.Kind == engine.LlamaCpp {
		return false
	}
	return e.info.Kind == other.info.Kind && e.info.Version == other.info.Version && e.info.Life == other.info.Life &&
		slices.Equal(e.info.Models, other.info.Models)
}

// places returns the addresses that a URL leads to, each with its path.
func places(ctx context.Context, raw string) (out []string) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	hosts, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil {
		return nil
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	for _, h := range hosts {
		out = append(out, net.JoinHostPort(h, port)+u.Path)
	}
	return out
}

// dispute finds the sockets that several engines seem to have, because they were found
// by trying ports.
func dispute(exams []*exam) {
	claims := make(map[string][]*exam)
	for _, e := range exams {
		if e.info == nil || !e.guessed() {
			continue
		}
		for _, s := range e.info.Streams {
			claims[s.Address] = append(claims[s.Address], e)
		}
	}
	for _, group := range claims {
		for _, e := range group {
			e.disputed = e.disputed || slices.ContainsFunc(group, func(other *exam) bool {
				return other != e && !e.sameAddress(other) && !e.sameLife(other)
			})
		}
	}
}

// guessed reports whether the engine's sockets were found by trying.
func (e *exam) guessed() bool { return e.warning(eventsocket.Guessed) != "" }

// warning returns what the adapter warns of under a code, empty if it does not.
func (e *exam) warning(code string) string {
	var texts []string
	for _, w := range e.info.Warnings {
		if w.Code == code {
			texts = append(texts, w.Text)
		}
	}
	return strings.Join(texts, "; ")
}
