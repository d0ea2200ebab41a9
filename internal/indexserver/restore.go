package indexserver

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// Restored says what a dump held.
type Restored struct {
	Models int `json:"models"`
	Ranks  int `json:"ranks"`
	Blocks int `json:"blocks"`
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	if err := checkHeaders(r, jsonForm); err != nil {
		return err
	}
	if r.ContentLength > s.cfg.MaxRestore {
		return tooLarge(s.cfg.MaxRestore)
	}
	finish, err := s.transfer()
	if err != nil {
		return err
	}
	defer finish()
	control := http.NewResponseController(w)
	body := http.MaxBytesReader(w, r.Body, s.cfg.MaxRestore)
	done, err := s.Restore(&patient{r: body, control: control})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(s.cfg.MaxRestore)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bodyError(err)
	case err != nil:
		return err
	}
	_ = control.SetReadDeadline(time.Time{})
	reply(w, http.StatusOK, done)
	return nil
}

// Restore reads what [Server.Dump] wrote, here or in another process, and registers
// the ranks in it. Each replaces what is there of the same rank, as
// [kvindex.Index.Restore] does; ranks that are not in the dump stay as they are. It
// holds the new blocks beside the old until all has been read; after an error
// nothing has changed. One is that an event socket tells of a rank in the dump.
func (s *Server) Restore(r io.Reader) (Restored, error) {
	staged, err := s.stage(r)
	if err != nil {
		return Restored{}, err
	}
	all := make([]wanted, len(staged))
	for i, st := range staged {
		all[i] = wanted{st.key, st.blockSize, st.ranks()}
	}
	if err := s.unfollowed(all); err != nil {
		return Restored{}, err
	}
	if err := s.ensure(all...); err != nil {
		return Restored{}, err
	}
	var done Restored
	for _, st := range staged {
		p, err := s.find(st.key)
		if err != nil || len(st.marks) == 0 { // unregistered meanwhile, or nothing
			continue
		}
		done.Models++
		for _, src := range st.ranks() {
			if r, err := s.lookup(p, src); err == nil {
				done.Ranks++
				done.Blocks += r.restore(st.index, st.marks[src])
			}
		}
	}
	return done, nil
}

// unfollowed refuses ranks that event sockets tell of.
func (s *Server) unfollowed(all []wanted) error {
	for _, want := range all {
		for _, src := range want.ranks {
			_, r := s.registered(want.key, src)
			if r == nil {
				continue
			}
			r.mu.Lock()
			followed := r.followed()
			r.mu.Unlock()
			if followed {
				return twoSources(want.key, src)
			}
		}
	}
	return nil
}

// restore replaces what a rank holds by what it holds in another index, where it is
// removed. It returns the number of blocks.
func (r *rank) restore(from *kvindex.Index, m mark) int {
	copied, held := from.Dump(r.src)
	if !held {
		copied = new(kvindex.Dump)
	}
	from.RemoveRank(r.src)
	last := uint64(0)
	if m.LastEventID != nil {
		last = *m.LastEventID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.followed() {
		return 0
	}
	r.known, r.epoch, r.last = m.LastEventID != nil, m.Epoch, last
	if !held && !r.known { // nothing had come from it
		r.pool.index.RemoveRank(r.src)
		return 0
	}
	r.pool.index.Tell(time.Now()) // the blocks begin with it
	err := r.pool.index.Restore(r.src, m.Epoch, last, func(yield func(*kv.Event, error) bool) {
		for ev := range copied.All() {
			if !yield(ev, nil) {
				return
			}
		}
	})
	if err != nil {
		panic(err) // it is that of the events, which have none
	}
	return copied.Blocks
}

// staged is an index that was read and is not in use yet.
type staged struct {
	key       poolKey
	blockSize int
	index     *kvindex.Index
	marks     map[kv.Source]mark // of all its ranks
	last      kv.Source          // whose event was the last
	maxRanks  int
}

func (st *staged) ranks() []kv.Source { return slices.Collect(maps.Keys(st.marks)) }

// see notes that there is a rank.
func (st *staged) see(m mark) error {
	st.marks[kv.Source{Worker: m.Worker, Rank: m.Rank}] = m
	if len(st.marks) > st.maxRanks {
		return fmt.Errorf("expected at most %d ranks", st.maxRanks)
	}
	return nil
}

// maxValue bounds the bytes of one event in a dump.
const maxValue = 16 << 20

// stage reads a dump.
func (s *Server) stage(r io.Reader) ([]*staged, error) {
	v := newValues(r, maxValue)
	var all []*staged
	seen := make(map[poolKey]bool)
	err := v.object(func(name string) error {
		st, err := s.stagePool(v, name)
		if err != nil {
			return at(shortQuote(name), err)
		}
		if seen[st.key] {
			return invalid(shortQuote(name), "expected each model and group once")
		}
		if len(all) == maxPools {
			return invalid(shortQuote(name), "expected at most %d models and groups", maxPools)
		}
		seen[st.key] = true
		all = append(all, st)
		return nil
	})
	if err == nil {
		err = v.finish()
	}
	var f *failure
	if err != nil && !errors.As(err, &f) {
		err = &failure{status: http.StatusBadRequest, message: err.Error(), err: err}
	}
	return all, err
}

// stagePool reads the member of one index. A key alone names the model and group
// where the members that do are missing.
func (s *Server) stagePool(v *values, name string) (*staged, error) {
	cfg := s.cfg.Index
	cfg.TTL, cfg.MaxBlocks = 0, 0 // it is not in use yet
	st := &staged{key: parseKey(name), index: kvindex.New(cfg), marks: make(map[kv.Source]mark), maxRanks: s.cfg.MaxRanks}
	err := v.object(func(field string) error {
		switch field {
		case "events":
			return st.readEvents(v)
		case "ranks":
			return st.readMarks(v)
		}
		raw, err := v.value()
		if err != nil {
			return err
		}
		return st.set(field, raw)
	})
	if err != nil {
		return nil, err
	}
	if st.blockSize == 0 {
		return nil, invalid("block_size", "expected the tokens in a block, from 1 to %d", maxBlockSize)
	}
	return st, st.key.check()
}

// set reads a member that is one value.
func (st *staged) set(field string, raw []byte) error {
	f, err := parseForm(fmt.Appendf(nil, `{%s:%s}`, quoteJSON(field), raw), nil)
	if err != nil {
		return invalid(shortQuote(field), "expected a value, got %s", shown(raw))
	}
	switch field {
	case "model_name":
		st.key.model = f.text(field)
	case "routing_group":
		st.key.group = f.text(field)
	case "block_size":
		st.blockSize = int(f.uint(field, maxBlockSize, 0))
	}
	return f.err
}

func (st *staged) readEvents(v *values) error {
	n := 0
	err := v.array(func() error {
		raw, err := v.value()
		if err != nil {
			return err
		}
		b, err := kv.ParseJSON(raw)
		if err != nil {
			return err
		}
		if b.Source != st.last {
			if _, ok := st.marks[b.Source]; !ok {
				err = st.see(mark{Worker: b.Source.Worker, Rank: b.Source.Rank})
			}
			if st.last = b.Source; err != nil {
				return err
			}
		}
		n++
		return st.index.Apply(b)
	})
	if err != nil {
		return at("events"+element(n), err)
	}
	for kind, ends := range st.index.Stats().Applied {
		if ends[kvindex.Invalid] > 0 {
			return invalid("events", "expected none that contradicts itself, got %d %v", ends[kvindex.Invalid], kv.Kind(kind))
		}
	}
	return nil
}

func (st *staged) readMarks(v *values) error {
	n := 0
	err := v.array(func() error {
		raw, err := v.value()
		if err != nil {
			return err
		}
		f, err := parseForm(raw, nil)
		if err != nil {
			return err
		}
		m := mark{
			Worker: kv.WorkerID(f.uint("worker_id", math.MaxUint64, 0)),
			Rank:   uint32(f.uint("dp_rank", math.MaxUint32, 0)),
			Epoch:  f.uint("epoch", math.MaxUint64, 0),
		}
		if f.has("last_event_id") {
			last := f.uint("last_event_id", math.MaxUint64, 0)
			m.LastEventID = &last
		}
		if m.Worker == 0 {
			f.fail("worker_id", "expected a worker, 0 is none")
		}
		if f.err != nil {
			return f.err
		}
		n++
		return st.see(m)
	})
	if err != nil {
		return at("ranks"+element(n), err)
	}
	return nil
}
