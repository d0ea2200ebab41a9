package thompson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// The form of snapshots. Another version is refused.
const (
	snapshotVersion   = 1
	snapshotReference = "reference"
	snapshotSafe      = "safe"
)

// maxMean is far above what can be learned from rewards and logarithms.
const maxMean = 1e6

// ErrSnapshot is wrapped by errors about snapshots that cannot be used: of another version
// or policy, or with contents that no policy can have learned.
var ErrSnapshot = errors.New("unusable snapshot")

type snapshotHead struct {
	Version int    `json:"version"`
	Policy  string `json:"policy"`
}

// refSnapshot is what [Reference] learned. Matrices are packed: the lower triangle, row by
// row. A negative average has no value yet.
type refSnapshot struct {
	snapshotHead
	Latency [numModes]average `json:"latency_ms"` // per token, of whole answers
	Arms    []refArmSnapshot  `json:"arms"`
}

type refArmSnapshot struct {
	Worker    kv.WorkerID                             `json:"worker"`
	Rank      uint32                                  `json:"rank"`
	Alpha     float64                                 `json:"alpha"`
	Beta      float64                                 `json:"beta"`
	Precision []float64                               `json:"precision"`
	Vector    []float64                               `json:"vector"`
	Latency   [numModes]average                       `json:"latency_ms"`
	ByKind    [numLevels][numLevels][numModes]average `json:"latency_ms_by_kind"` // osl, prefill; MEDIUM, LOW, HIGH
}

// safeSnapshot is what [Safe] learned.
type safeSnapshot struct {
	snapshotHead
	OneHead      bool              `json:"one_head"`
	Heads        []headSnapshot    `json:"heads"`
	Arms         []safeArmSnapshot `json:"arms"`
	Prefill      prefillSnapshot   `json:"prefill"`
	Budget       float64           `json:"budget"`
	StoppedUntil time.Time         `json:"stopped_until,omitzero"`
}

type headSnapshot struct {
	Precision []float64 `json:"precision"`
	Vector    []float64 `json:"vector"`
	Updated   time.Time `json:"updated,omitzero"`
}

type safeArmSnapshot struct {
	Worker  kv.WorkerID      `json:"worker"`
	Rank    uint32           `json:"rank"`
	Offsets []offsetSnapshot `json:"offsets"` // one per head
}

type offsetSnapshot struct {
	Mean    float64   `json:"mean"`
	Count   float64   `json:"count"`
	Updated time.Time `json:"updated,omitzero"`
}

type prefillSnapshot struct {
	Tokens   float64 `json:"tokens"`
	Seconds  float64 `json:"seconds"`
	Reported bool    `json:"reported,omitzero"`
}

func sortedArms[A any](arms map[kv.Source]A) []kv.Source {
	ids := make([]kv.Source, 0, len(arms))
	for id := range arms {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b kv.Source) int {
		switch {
		case a.Worker < b.Worker, a.Worker == b.Worker && a.Rank < b.Rank:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return ids
}

// State is a copy of what a policy has learned at a moment. It does not change any more and
// is safe for concurrent use, so that the policy's lock is held while it is made and not
// while it is written.
type State struct{ snapshot any }

// MarshalJSON returns the snapshot that Restore of the same policy takes.
func (s State) MarshalJSON() ([]byte, error) { return json.Marshal(s.snapshot) }

// State returns a copy of what was learned. Conversations and pending decisions are not
// part of it.
func (r *Reference) State() State {
	s := &refSnapshot{snapshotHead: snapshotHead{snapshotVersion, snapshotReference}, Latency: r.global}
	s.Arms = make([]refArmSnapshot, 0, len(r.arms))
	for _, id := range sortedArms(r.arms) {
		a := r.arms[id]
		s.Arms = append(s.Arms, refArmSnapshot{
			Worker: id.Worker, Rank: id.Rank, Alpha: a.alpha, Beta: a.beta,
			Precision: slices.Clone(a.model.a[:]), Vector: slices.Clone(a.model.b[:]), Latency: a.all, ByKind: a.byKind,
		})
	}
	return State{s}
}

// Restore replaces what was learned by a snapshot, and forgets conversations and pending
// decisions. Ranks in it that never become candidates are forgotten after a while. On an
// error, which wraps [ErrSnapshot], nothing has changed.
func (r *Reference) Restore(data []byte) error {
	var s refSnapshot
	if err := readSnapshot(data, snapshotReference, &s); err != nil {
		return err
	}
	arms := make(map[kv.Source]*refArm, len(s.Arms))
	for i := range s.Arms {
		a, err := r.restoreArm(&s.Arms[i])
		if err != nil {
			return fmt.Errorf("arm %d/%d: %w", s.Arms[i].Worker, s.Arms[i].Rank, err)
		}
		arms[a.id] = a
	}
	r.reset()
	r.arms, r.global = arms, s.Latency
	for _, a := range arms {
		a.seen = r.decided
	}
	return nil
}

func (r *Reference) restoreArm(s *refArmSnapshot) (*refArm, error) {
	a := r.newArm(kv.Source{Worker: s.Worker, Rank: s.Rank})
	if err := restoreGaussian(a.model.a[:], a.model.l[:], a.model.b[:], s.Precision, s.Vector); err != nil {
		return nil, err
	}
	a.model.refresh()
	if !(s.Alpha > 0 && s.Beta > 0) {
		return nil, fmt.Errorf("%w: alpha %v, beta %v: expected numbers above 0", ErrSnapshot, s.Alpha, s.Beta)
	}
	a.alpha, a.beta = s.Alpha, s.Beta
	a.all, a.byKind = s.Latency, s.ByKind
	return a, nil
}

// State returns a copy of what was learned, with the budget and whether the policy has
// stopped. Pending decisions are not part of it. It does not matter whether the policy is
// in shadow mode: both learn the same.
func (s *Safe) State() State {
	out := &safeSnapshot{
		snapshotHead: snapshotHead{snapshotVersion, snapshotSafe},
		OneHead:      s.cfg.OneHead,
		Prefill:      prefillSnapshot{s.rate.tokens, s.rate.seconds, s.rate.reported},
		Budget:       s.budget,
		StoppedUntil: s.until,
	}
	for i := range s.heads {
		h := &s.heads[i]
		out.Heads = append(out.Heads, headSnapshot{slices.Clone(h.a[:]), slices.Clone(h.b[:]), h.updated})
	}
	for _, id := range sortedArms(s.arms) {
		a := safeArmSnapshot{Worker: id.Worker, Rank: id.Rank}
		for _, o := range s.arms[id].offsets {
			a.Offsets = append(a.Offsets, offsetSnapshot{o.mean, o.count, o.updated})
		}
		out.Arms = append(out.Arms, a)
	}
	return State{out}
}

// Restore replaces what was learned by a snapshot, and forgets pending decisions. What was
// learned goes on fading from when it was. Ranks in it that never become candidates are
// forgotten after a while. On an error, which wraps [ErrSnapshot], nothing has changed.
func (s *Safe) Restore(data []byte) error {
	var in safeSnapshot
	if err := readSnapshot(data, snapshotSafe, &in); err != nil {
		return err
	}
	if in.OneHead != s.cfg.OneHead {
		return fmt.Errorf("%w: one_head is %v in the snapshot and %v in the configuration", ErrSnapshot, in.OneHead, s.cfg.OneHead)
	}
	var heads [2]head
	if len(in.Heads) != len(heads) {
		return fmt.Errorf("%w: %d heads: expected %d", ErrSnapshot, len(in.Heads), len(heads))
	}
	for i := range heads {
		h := &heads[i]
		if err := restoreGaussian(h.a[:], h.l[:], h.b[:], in.Heads[i].Precision, in.Heads[i].Vector); err != nil {
			return fmt.Errorf("head %d: %w", i, err)
		}
		h.updated = in.Heads[i].Updated
		forward(h.theta[:], h.l[:], h.b[:])
		backward(h.theta[:], h.l[:], h.theta[:])
	}
	arms := make(map[kv.Source]*safeArm, len(in.Arms))
	for i := range in.Arms {
		a, err := restoreSafeArm(&in.Arms[i])
		if err != nil {
			return fmt.Errorf("arm %d/%d: %w", in.Arms[i].Worker, in.Arms[i].Rank, err)
		}
		a.seen = s.decided
		arms[a.id] = a
	}
	if !(in.Prefill.Tokens > 0 && in.Prefill.Seconds > 0) {
		return fmt.Errorf("%w: prefill: %v tokens in %v s: expected numbers above 0", ErrSnapshot, in.Prefill.Tokens, in.Prefill.Seconds)
	}
	s.reset()
	s.heads, s.arms = heads, arms
	s.rate = prefillRate{in.Prefill.Tokens, in.Prefill.Seconds, in.Prefill.Reported}
	// No policy owes more than one choice costs.
	s.budget = min(max(in.Budget, -(1+s.cfg.Guard)), s.cfg.BudgetCap)
	s.until = in.StoppedUntil // as long as it may be; see stopped
	return nil
}

func restoreSafeArm(in *safeArmSnapshot) (*safeArm, error) {
	a := &safeArm{id: kv.Source{Worker: in.Worker, Rank: in.Rank}}
	if len(in.Offsets) != len(a.offsets) {
		return nil, fmt.Errorf("%w: %d offsets: expected %d", ErrSnapshot, len(in.Offsets), len(a.offsets))
	}
	for i, o := range in.Offsets {
		if o.Count < 0 || math.Abs(o.Mean) > maxMean {
			return nil, fmt.Errorf("%w: offset %d: mean %v, count %v: expected one of at most %v and one of at least 0",
				ErrSnapshot, i, o.Mean, o.Count, maxMean)
		}
		a.offsets[i] = offset{mean: o.Mean, count: o.Count, updated: o.Updated}
	}
	return a, nil
}

// readSnapshot decodes a snapshot of the given policy into v. JSON has no numbers that are
// not finite, so that none gets in.
func readSnapshot(data []byte, policy string, v any) error {
	var h snapshotHead
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	switch {
	case h.Version != snapshotVersion:
		return fmt.Errorf("%w: version %d: expected %d", ErrSnapshot, h.Version, snapshotVersion)
	case h.Policy != policy:
		return fmt.Errorf("%w: policy %q: expected %q", ErrSnapshot, h.Policy, policy)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: more than one JSON value", ErrSnapshot)
	}
	return nil
}

// restoreGaussian copies a precision matrix and a vector, makes the factor, and refuses
// what is none.
func restoreGaussian(a, l, b, precision, vector []float64) error {
	if len(precision) != len(a) || len(vector) != len(b) {
		return fmt.Errorf("%w: precision of %d and vector of %d numbers: expected %d and %d",
			ErrSnapshot, len(precision), len(vector), len(a), len(b))
	}
	copy(a, precision)
	copy(b, vector)
	if !cholesky(l, a, len(b), 0) {
		return fmt.Errorf("%w: precision is not positive definite", ErrSnapshot)
	}
	mean := make([]float64, len(b))
	forward(mean, l, b)
	backward(mean, l, mean)
	for _, v := range mean {
		if !(math.Abs(v) <= maxMean) {
			return fmt.Errorf("%w: a weight's mean is %v: expected at most %v", ErrSnapshot, v, maxMean)
		}
	}
	return nil
}
