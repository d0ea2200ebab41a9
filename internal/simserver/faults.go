package simserver

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// faults are what goes wrong at the moment. Of each kind there is one at most, apart
// from routes that are missing. Safe for concurrent use.
type faults struct {
	some atomic.Bool // there is any; whoever sees none need not lock
	mu   sync.Mutex
	set  []*activeFault
}

// activeFault is a fault and what came of it.
type activeFault struct {
	Fault
	since time.Time
	seen  int // occasions
	hits  int
}

// put adds a fault, in place of one of its kind.
func (fs *faults) put(f Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.drop(func(a *activeFault) bool { return a.Kind == f.Kind && a.Path == f.Path })
	fs.set = append(fs.set, &activeFault{Fault: f, since: time.Now()})
	fs.some.Store(true)
}

// drop takes those out that are to go. The caller holds the mutex.
func (fs *faults) drop(gone func(*activeFault) bool) {
	fs.set = slices.DeleteFunc(fs.set, gone)
	fs.some.Store(len(fs.set) > 0)
}

// clear takes the faults of a kind out, all for an empty one.
func (fs *faults) clear(kind FaultKind) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.drop(func(a *activeFault) bool { return kind == "" || a.Kind == kind })
}

// on returns the fault of a kind, if there is one now.
func (fs *faults) on(kind FaultKind) (Fault, bool) {
	if !fs.some.Load() {
		return Fault{}, false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, a := range fs.set {
		if a.Kind == kind && !a.over() {
			return a.Fault, true
		}
	}
	return Fault{}, false
}

// over reports whether a fault that lasts for a while has ended.
func (a *activeFault) over() bool {
	return (a.Kind == FaultLoading || a.Kind == FaultRefuse) && time.Since(a.since) >= a.For
}

// turn counts one more occasion for the fault of a kind, and returns it if this is
// one of those that it strikes.
func (fs *faults) turn(kind FaultKind) (Fault, bool) {
	if !fs.some.Load() {
		return Fault{}, false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.set, func(a *activeFault) bool { return a.Kind == kind })
	if i < 0 {
		return Fault{}, false
	}
	a := fs.set[i]
	a.seen++
	if a.seen%max(a.Every, 1) != 0 {
		return Fault{}, false
	}
	if a.hits++; a.Times > 0 && a.hits >= a.Times {
		fs.drop(func(b *activeFault) bool { return b == a })
	}
	return a.Fault, true
}

// missing reports whether a path is to be unknown.
func (fs *faults) missing(path string) bool {
	if !fs.some.Load() {
		return false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, a := range fs.set {
		if a.Kind == FaultNoRoute && a.Path == path {
			a.hits++
			return true
		}
	}
	return false
}

// Fault makes something go wrong from now on, in place of what was to go wrong in
// that way before. A restart that names no number happens at once; Fault returns
// when it is over.
func (s *Server) Fault(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case f.Kind == FaultRestart && f.Every == 0:
		s.Restart()
	case f.Kind == FaultRefuse:
		s.faults.put(f)
		s.gates.refuse(f.For)
	default:
		s.faults.put(f)
		s.spoilEvents()
	}
	return nil
}

// spoilEvents has the publisher of events do what the faults say.
func (s *Server) spoilEvents() {
	var e EventFaults
	if f, on := s.faults.on(FaultDropEvents); on {
		e.DropEvery = f.Every
	}
	if f, on := s.faults.on(FaultReplayTruncated); on {
		e.ReplayTruncated, e.ReplayKeep = true, f.After
	}
	_, e.NoReplay = s.faults.on(FaultNoReplay)
	_, e.DuplicateStores = s.faults.on(FaultDuplicateStores)
	_, e.GroupEvents = s.faults.on(FaultGroupEvents)
	_, e.ByteHashes = s.faults.on(FaultBytesHash)
	if _, on := s.faults.on(FaultBlockSize); on {
		e.BlockSize = s.blockSize()
	}
	s.SetEventFaults(e)
}

// Heal ends the faults of a kind, all of them for an empty one. Answers that are
// broken already stay so.
func (s *Server) Heal(kind FaultKind) {
	s.faults.clear(kind)
	s.spoilEvents()
	if kind == "" || kind == FaultRefuse {
		s.gates.refuse(0)
	}
}

// Faults returns what goes wrong at the moment, in the order in which it was asked
// for.
func (s *Server) Faults() []Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	out := make([]Fault, 0, len(s.faults.set))
	for _, a := range s.faults.set {
		if !a.over() {
			out = append(out, a.Fault)
		}
	}
	return out
}

// serveFault lists the faults, adds one, or ends some:
//
//	GET /sim/fault
//	POST /sim/fault {"fault":"reset:3"}
//	POST /sim/fault {"clear":"reset"}
//	DELETE /sim/fault
func (s *Server) serveFault(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		if bad := s.changeFault(w, r); bad != nil {
			writeError(w, bad)
			return
		}
	case http.MethodDelete:
		s.Heal("")
	}
	b := []byte(`{"faults":[`)
	s.faults.mu.Lock()
	for i, a := range s.faults.set {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"fault":`...)
		b = openai.AppendString(b, a.String())
		b = append(b, `,"hits":`...)
		b = strconv.AppendInt(b, int64(a.hits), 10)
		b = append(b, '}')
	}
	s.faults.mu.Unlock()
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// changeFault does what the body of a request says.
func (s *Server) changeFault(w http.ResponseWriter, r *http.Request) *apiError {
	sc := newScratch()
	defer sc.free()
	if bad := sc.read(w, r); bad != nil {
		return bad
	}
	set, clear := sc.fields.Get("fault"), sc.fields.Get("clear")
	if set.Present() == clear.Present() {
		return badField("fault", "expected either fault or clear, with a string")
	}
	if clear.Present() {
		kind, ok := clear.Text()
		if !ok || kind != "" && faultRuleOf(FaultKind(kind)) == nil {
			return badField("clear", "expected a kind of fault, or an empty string for all, got %s", clear)
		}
		s.Heal(FaultKind(kind))
		return nil
	}
	text, ok := set.Text()
	if !ok {
		return badField("fault", "expected a string, got %s", got(set))
	}
	f, err := ParseFault(text)
	if err == nil {
		err = s.Fault(f)
	}
	if err != nil {
		return &apiError{status: http.StatusBadRequest, message: err.Error(), param: "fault"}
	}
	return nil
}
