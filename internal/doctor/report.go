package doctor

import (
	"encoding/json"
	"io"
	"slices"
)

// Status is the end of a check.
type Status string

// The ends of checks, from good to bad.
const (
	OK   Status = "ok"
	Skip Status = "skip" // nothing could be found out, or it does not apply
	Warn Status = "warn" // it works, with less than there could be
	Fail Status = "fail" // it is not as it was said
)

// severity orders by how bad a status is. What was skipped is nothing bad.
func (s Status) severity() int { return slices.Index([]Status{OK, Warn, Fail}, s) }

// The names of the checks, in the order of reports.
const (
	Reach        = "reach"
	Duplicate    = "duplicate"
	Kind         = "kind"
	Models       = "models"
	BlockSize    = "block_size"
	KVBlocks     = "kv_blocks"
	Ranks        = "ranks"
	MaxSeqs      = "max_seqs"
	Load         = "load"
	Answer       = "answer"
	Events       = "events"
	Gaps         = "gaps"
	Replay       = "replay"
	Match        = "match"
	Tokens       = "tokens"
	CachedTokens = "cached_tokens"
	Usage        = "usage"
	Priority     = "priority"
	Cancel       = "cancel"
	Salt         = "salt"
	Clock        = "clock"
)

var order = []string{
	Reach, Duplicate, Kind, Models, BlockSize, KVBlocks, Ranks, MaxSeqs, Load, Answer, Events, Gaps, Replay, Match, Tokens,
	CachedTokens, Usage, Priority, Cancel, Salt, Clock,
}

// Report is what was found, an entry for each engine in the order of [Config.Targets].
// Its JSON is an interface: members are added, never renamed.
type Report struct {
	Status   Status   `json:"status"`   // the worst of all engines
	Problems int      `json:"problems"` // engines with a warning or a failure
	Engines  []Engine `json:"engines"`
}

// Engine is what was found about one engine.
type Engine struct {
	URL     string   `json:"url"`
	Kind    string   `json:"kind,omitempty"`
	Version string   `json:"version,omitempty"`
	Models  []string `json:"models"`
	Status  Status   `json:"status"` // the worst of its checks
	Checks  []Check  `json:"checks"`
}

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Text says in a line what was found, and Advice what to do about it, if anything.
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
	// Data is what was found for programs, one of the structs of this package whose
	// names end in Data; nil where there is nothing.
	Data any `json:"data,omitempty"`
}

// Check returns the check of a name, nil if the engine has none.
func (e *Engine) Check(name string) *Check {
	for i := range e.Checks {
		if e.Checks[i].Name == name {
			return &e.Checks[i]
		}
	}
	return nil
}

// Failed returns how many engines have a failed check, or, if strict, a warning.
func (r *Report) Failed(strict bool) int {
	n := 0
	for i := range r.Engines {
		if s := r.Engines[i].Status; s == Fail || strict && s == Warn {
			n++
		}
	}
	return n
}

// sum fills in the states of engines and of the whole.
func (r *Report) sum() {
	r.Status = OK
	for i := range r.Engines {
		e := &r.Engines[i]
		e.Status = OK
		for _, c := range e.Checks {
			if c.Status.severity() > e.Status.severity() {
				e.Status = c.Status
			}
		}
		if e.Status != OK {
			r.Problems++
		}
		if e.Status.severity() > r.Status.severity() {
			r.Status = e.Status
		}
	}
}

// WriteJSON writes the report as one indented JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
