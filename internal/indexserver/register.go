package indexserver

import (
	"encoding/json"
	"net/http"
	"net/url"
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
	endpoint, replay := f.text("endpoint"), f.text("replay_endpoint")
	if f.err != nil {
		return f.err
	}
	if err := checkEndpoint("endpoint", endpoint); err != nil {
		return err
	}
	if err := checkEndpoint("replay_endpoint", replay); err != nil {
		return err
	}
	if err := s.ensure(wanted{key, int(size), []kv.Source{src}}); err != nil {
		return err
	}
	reply(w, http.StatusCreated, statusBody{"ok"})
	return nil
}

// checkEndpoint refuses the address of an event socket, and other text, too.
func checkEndpoint(field, address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "tcp" && u.Scheme != "ipc" {
		return invalid(field, "expected nothing, or the address of an event socket such as tcp://10.0.0.7:5557, got %s", shortQuote(address))
	}
	return &failure{status: http.StatusNotImplemented, field: field,
		message: "event sockets are not subscribed to: register without it, and send the worker's events to POST /events"}
}

// unregister takes ranks and their blocks away.
func (s *Server) unregister(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	key, worker := f.model(), f.instance()
	anyGroup, anyRank := !f.has("routing_group"), !f.has("dp_rank")
	dp := f.rank()
	if f.err != nil {
		return f.err
	}
	removed := 0
	for _, p := range s.all() {
		if p.key.model != key.model || !anyGroup && p.key.group != key.group {
			continue
		}
		for _, rk := range s.members(p) {
			if rk.src.Worker == worker && (anyRank || rk.src.Rank == dp) && s.remove(rk) {
				removed++
			}
		}
	}
	if removed == 0 {
		return &failure{status: http.StatusNotFound, field: "instance_id",
			message: "worker " + strconv.FormatUint(uint64(worker), 10) + " is not registered for model " + quoted(key)}
	}
	reply(w, http.StatusOK, statusBody{"ok"})
	return nil
}

// workerBody is a worker of one model. Status is that of the rank which is furthest
// from being of use.
type workerBody struct {
	InstanceID   kv.WorkerID             `json:"instance_id"`
	ModelName    string                  `json:"model_name"`
	RoutingGroup string                  `json:"routing_group"`
	BlockSize    int                     `json:"block_size"`
	Status       string                  `json:"status"`
	Endpoints    map[string]string       `json:"endpoints"`
	Listeners    map[string]listenerBody `json:"listeners"`
}

// listenerBody is what came from a rank.
type listenerBody struct {
	Status      string  `json:"status"`
	Blocks      int     `json:"blocks"`
	Orphans     int     `json:"orphans"`
	Epoch       uint64  `json:"epoch"`
	LastEventID *uint64 `json:"last_event_id"`
	Applied     uint64  `json:"applied"`
	Stale       uint64  `json:"stale"`
	Missed      uint64  `json:"missed"`
}

const (
	statusPending = "pending" // nothing has come yet
	statusActive  = "active"
)

func (s *Server) workers(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	model, group := q.Get("model_name"), q.Get("routing_group")
	out := []*workerBody{}
	for _, p := range s.all() {
		if model != "" && p.key.model != model || group != "" && p.key.group != group {
			continue
		}
		var last *workerBody
		for _, rk := range s.members(p) {
			if last == nil || last.InstanceID != rk.src.Worker {
				last = &workerBody{
					InstanceID: rk.src.Worker, ModelName: p.key.model, RoutingGroup: p.key.group, BlockSize: p.blockSize,
					Status: statusActive, Endpoints: map[string]string{}, Listeners: map[string]listenerBody{},
				}
				out = append(out, last)
			}
			l := rk.listener()
			if l.Status == statusPending {
				last.Status = statusPending
			}
			last.Listeners[strconv.FormatUint(uint64(rk.src.Rank), 10)] = l
		}
	}
	reply(w, http.StatusOK, out)
	return nil
}

func (r *rank) listener() listenerBody {
	stats, found := r.pool.index.Rank(r.src)
	r.mu.Lock()
	defer r.mu.Unlock()
	b := listenerBody{
		Status: statusPending, Blocks: stats.Blocks, Orphans: stats.Orphans,
		Epoch: r.epoch, Applied: r.applied, Stale: r.stale, Missed: r.missed,
	}
	if found {
		b.Status = statusActive
	}
	if r.known {
		last := r.last
		b.LastEventID = &last
	}
	return b
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
