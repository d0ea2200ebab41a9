package indexserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/kv"
)

// statusBody says that something was done.
type statusBody struct {
	Status string `json:"status"`
}

// register announces a rank. Doing it again changes nothing.
func (s *Server) register(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	key, src := f.model(), kv.Source{Worker: f.instance(), Rank: f.rank()}
	size := f.uint("block_size", maxBlockSize, 0)
	if size == 0 {
		f.fail("block_size", "expected the tokens in a block, from 1 to %d", maxBlockSize)
	}
	if f.text("additional_salt") != "" {
		f.fail("additional_salt", "not supported: name the cache_salt in queries")
	}
	x := f.socket(src.Rank, int(size))
	if f.err != nil {
		return f.err
	}
	want := wanted{key, int(size), []kv.Source{src}}
	if x == nil {
		err = s.ensure(want)
	} else {
		err = s.listen(want, src, x)
	}
	if err != nil {
		return err
	}
	reply(w, http.StatusCreated, statusBody{"ok"})
	return nil
}

// unregister takes ranks and their blocks away.
func (s *Server) unregister(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	key, worker := f.model(), f.instance()
	anyGroup := !f.has("routing_group")
	var only *uint32
	if rank := f.rank(); f.has("dp_rank") {
		only = &rank
	}
	if f.err != nil {
		return f.err
	}
	removed, err := s.leave(worker, only, func(k poolKey) bool { return k.model == key.model && (anyGroup || k.group == key.group) })
	if err != nil {
		return err
	}
	if removed == 0 {
		return &failure{status: http.StatusNotFound, field: "instance_id",
			message: "worker " + strconv.FormatUint(uint64(worker), 10) + " is not registered for model " + quoted(key)}
	}
	reply(w, http.StatusOK, statusBody{"ok"})
	return nil
}

// leave hangs up on the sockets of a worker's ranks in some pools, or those of only one
// rank, and takes the ranks and their blocks away. It returns how many there were.
func (s *Server) leave(worker kv.WorkerID, only *uint32, in func(poolKey) bool) (removed int, err error) {
	s.linking.Lock()
	defer s.linking.Unlock()
	var pools []*pool
	for _, p := range s.all() {
		if !in(p.key) {
			continue
		}
		pools = append(pools, p)
		if only == nil {
			continue
		}
		if _, r := s.registered(p.key, kv.Source{Worker: worker, Rank: *only}); r != nil && r.toldByOther() {
			return 0, &failure{status: http.StatusConflict, field: "dp_rank", message: fmt.Sprintf(
				"rank %d of worker %d is told of by the socket of another rank, and would come back: unregister that, or the worker", *only, worker)}
		}
	}
	for _, p := range pools {
		p.sockets.unlisten(worker, only) // it may add ranks until then
		for _, r := range s.members(p) {
			if r.src.Worker == worker && (only == nil || r.src.Rank == *only) && s.remove(r) {
				removed++
			}
		}
	}
	return removed, nil
}

// toldByOther reports whether events of a rank come from a socket that it was not
// registered with.
func (r *rank) toldByOther() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told && r.socket == nil
}

func tokens(n int) string {
	if n == 1 {
		return "1 token"
	}
	return strconv.Itoa(n) + " tokens"
}

// shortQuote quotes a name for a message.
func shortQuote(s string) string {
	const enough = 100
	if len(s) > enough {
		s = strings.ToValidUTF8(s[:enough], "") + "…"
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be marshalled
	}
	return string(b)
}
