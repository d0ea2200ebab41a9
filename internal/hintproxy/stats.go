package hintproxy

import (
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/openai"
)

// Routes is what the paths of the proxy's own routes begin with.
const Routes = "/_stator/hints/"

// Stats is what a [Proxy] has done so far.
type Stats struct {
	// Upstream is where requests go, without a password.
	Upstream string `json:"upstream"`
	// UptimeSeconds is how long ago the proxy was made.
	UptimeSeconds float64 `json:"uptime_seconds"`
	// Requests is how many came, and InFlight how many of them have not ended.
	Requests uint64 `json:"requests"`
	InFlight int64  `json:"in_flight"`
	// UpstreamErrors is how many got no answer from the upstream, Broken how many the
	// beginning of one, and Left how many clients went away before the end.
	UpstreamErrors uint64 `json:"upstream_errors"`
	Broken         uint64 `json:"broken"`
	Left           uint64 `json:"left"`
	// Looped is how many had passed this proxy before and were refused.
	Looped uint64 `json:"looped"`
	// HeldBytes is how much memory is set aside for the bodies of calls under way, and
	// Crowded how many calls passed without hints, and were not recorded, because there was
	// no more.
	HeldBytes int64  `json:"held_bytes"`
	Crowded   uint64 `json:"crowded"`
	// WithoutRun is how many calls did not say which run they are of. They count as one.
	WithoutRun uint64 `json:"without_run"`
	// IgnoredHeaders is how often a header made no sense, by its name.
	IgnoredHeaders map[string]uint64 `json:"ignored_headers"`
	// Hints is what became of the calls.
	Hints hints.Stats `json:"hints"`
	// Trie and Record are nil where there is none.
	Trie   *TrieStats   `json:"trie,omitzero"`
	Record *RecordStats `json:"record,omitzero"`
	// Settings are those of hints, by their names in files.
	Settings hints.Config `json:"settings"`
}

// TrieStats is how the file of predictions stands.
type TrieStats struct {
	Path string `json:"path"`
	// Loaded is when the predictions in use were read; zero if there are none.
	Loaded time.Time `json:"loaded,omitzero"`
	// Reloads is how often others took their place.
	Reloads uint64 `json:"reloads"`
	// Error is why the file could not be read when that was tried last.
	Error string `json:"error,omitzero"`
}

// RecordStats is how the recording stands.
type RecordStats struct {
	Path string `json:"path"`
	// Written is how many spans are in the file, Waiting how many will be, and Dropped how
	// many never.
	Written uint64 `json:"written"`
	Waiting uint64 `json:"waiting"`
	Dropped uint64 `json:"dropped"`
	// Error is why the file cannot be written at present.
	Error string `json:"error,omitzero"`
}

// Stats returns what the proxy has done so far.
func (p *Proxy) Stats() Stats {
	s := Stats{
		Upstream:       p.cfg.Upstream.Redacted(),
		UptimeSeconds:  time.Since(p.started).Seconds(),
		Requests:       p.requests.Load(),
		InFlight:       p.inFlight.Load(),
		UpstreamErrors: p.failures.Load(),
		Broken:         p.broken.Load(),
		Left:           p.left.Load(),
		Looped:         p.looped.Load(),
		HeldBytes:      p.held.used.Load(),
		Crowded:        p.crowded.Load(),
		WithoutRun:     p.withoutRun.Load(),
		Hints:          hints.Stats{Untouched: map[string]uint64{}},
		Settings:       p.cfg.Hints,
	}
	p.mu.Lock()
	s.IgnoredHeaders = maps.Clone(p.ignored)
	p.mu.Unlock()
	if p.hints != nil {
		s.Hints = p.hints.Stats()
	}
	if p.trie != nil {
		s.Trie = p.trie.stats()
	}
	if p.record != nil {
		s.Record = p.record.stats()
	}
	return s
}

// serveOwn answers a request for one of the proxy's own routes.
func (p *Proxy) serveOwn(w http.ResponseWriter, r *http.Request, name string) {
	var body any
	switch name {
	case "live":
		body = map[string]string{"status": "live"}
	case "stats":
		body = p.Stats()
	default:
		answer(w, &openai.Error{Code: openai.CodeRouteNotFound, Message: "expected " + Routes + "live or " + Routes + "stats"})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, &openai.Error{Code: openai.CodeMethodNotAllowed, Message: r.Method + ": expected GET"})
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		answer(w, &openai.Error{Code: openai.CodeInternal, Message: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may have left
}
