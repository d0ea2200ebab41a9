package indexserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvlink"
)

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
	Status      string      `json:"status"`
	Blocks      int         `json:"blocks"`
	Orphans     int         `json:"orphans"`
	Epoch       uint64      `json:"epoch"`
	LastEventID *uint64     `json:"last_event_id"`
	Applied     uint64      `json:"applied"`
	Stale       uint64      `json:"stale"`
	Missed      uint64      `json:"missed"`
	Socket      *socketBody `json:"socket,omitempty"` // that tells of it
}

// socketBody is how the socket stands that tells of a rank.
type socketBody struct {
	Rank           uint32            `json:"dp_rank"` // that was registered with it
	ReplayEndpoint string            `json:"replay_endpoint,omitempty"`
	State          string            `json:"state"`
	Error          string            `json:"error,omitempty"`
	Connects       uint64            `json:"connects"`
	Batches        uint64            `json:"batches"`
	Gaps           uint64            `json:"gaps"`
	Restarts       uint64            `json:"restarts"`
	Misplaced      uint64            `json:"misplaced"`
	Skipped        map[string]uint64 `json:"skipped"`
	Eagle          bool              `json:"eagle"`
}

// The statuses of listeners. One of a rank that is posted is never failed.
const (
	statusPending = "pending" // nothing has come yet
	statusActive  = "active"
	statusFailed  = "failed" // there is no connection, or its events are of no use
)

// worse returns the status that matters more.
func worse(a, b string) string {
	for _, s := range [...]string{statusFailed, statusPending} {
		if a == s || b == s {
			return s
		}
	}
	return statusActive
}

func (s *Server) workers(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	model, group := q.Get("model_name"), q.Get("routing_group")
	out := []*workerBody{}
	for _, p := range s.all() {
		if model != "" && p.key.model != model || group != "" && p.key.group != group {
			continue
		}
		var last *workerBody
		links := p.tellers()
		for _, rk := range s.members(p) {
			if last == nil || last.InstanceID != rk.src.Worker {
				last = &workerBody{
					InstanceID: rk.src.Worker, ModelName: p.key.model, RoutingGroup: p.key.group, BlockSize: p.blockSize,
					Status: statusActive, Endpoints: map[string]string{}, Listeners: map[string]listenerBody{},
				}
				out = append(out, last)
			}
			l, x := rk.listener(links)
			last.Status = worse(last.Status, l.Status)
			name := strconv.FormatUint(uint64(rk.src.Rank), 10)
			last.Listeners[name] = l
			if x != nil {
				last.Endpoints[name] = x.endpoint
			}
		}
	}
	reply(w, http.StatusOK, out)
	return nil
}

// tellers returns the links of a pool by the ranks that they tell of.
func (p *pool) tellers() map[kv.Source]*kvlink.Stats {
	links, _ := p.sockets.stats()
	all := make(map[kv.Source]*kvlink.Stats, len(links))
	for i := range links {
		for _, rank := range links[i].Ranks {
			all[kv.Source{Worker: links[i].Source.Worker, Rank: rank}] = &links[i]
		}
	}
	for i := range links { // a rank's own comes first
		all[links[i].Source] = &links[i]
	}
	return all
}

// listener returns what came from a rank, with the links of its pool, and the rank's
// own socket if it has one.
func (r *rank) listener(links map[kv.Source]*kvlink.Stats) (listenerBody, *socket) {
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
	switch l := links[r.src]; {
	case l != nil:
		b.tell(l, r)
	case r.socket != nil: // its link is just being made
		b.Status = statusPending
	}
	return b, r.socket
}

// tell adds how the link stands that tells of a rank.
func (b *listenerBody) tell(l *kvlink.Stats, r *rank) {
	x := &socketBody{
		Rank: l.Source.Rank, State: l.State.String(),
		Connects: l.Connects, Batches: l.Batches, Gaps: l.Feed.Gaps, Restarts: l.Feed.Restarts,
		Misplaced: l.Misplaced, Skipped: make(map[string]uint64), Eagle: l.Eagle,
	}
	countSkipped(x.Skipped, l)
	if r.socket != nil {
		x.ReplayEndpoint = r.socket.replay
	}
	switch {
	case l.State == kvlink.Dialing && l.LastError != nil:
		b.Status, x.Error = statusFailed, clip(l.LastError.Error())
	case l.Mismatch > 0:
		b.Status = statusFailed
		x.Error = fmt.Sprintf("the engine has blocks of %s, and was registered with %s", tokens(l.Mismatch), tokens(r.pool.blockSize))
	case l.State == kvlink.Dialing, l.State == kvlink.Silent, l.State == kvlink.Syncing:
		b.Status = statusPending
	default:
		b.Status = statusActive
	}
	if l.Source == r.src {
		b.Stale += l.Feed.Stale
		b.Missed += l.Feed.Missed
	}
	b.Socket = x
}
