package indexserver

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/kv"
)

// dump writes all indexes, or those of the model and group in the URL.
func (s *Server) dump(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	model, group := q.Get("model_name"), q.Get("routing_group")
	var some []*pool
	for _, p := range s.all() {
		if (model == "" || p.key.model == model) && (group == "" || p.key.group == group) {
			some = append(some, p)
		}
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		return nil
	}
	done, err := s.transfer()
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client went away, or was too slow.
	if s.dumpTo(&steady{w: w, control: http.NewResponseController(w)}, some) != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// Dump writes all indexes as one JSON object, in the form that [Server.Restore]
// reads. Each rank is written as it is at one instant; events and queries go on
// meanwhile. It holds a copy of one rank at a time in memory. The error is that of
// w.
func (s *Server) Dump(w io.Writer) error { return s.dumpTo(w, s.all()) }

func (s *Server) dumpTo(w io.Writer, pools []*pool) error {
	d := newDumper(w)
	d.text("{")
	for i, p := range pools {
		if i > 0 {
			d.text(",")
		}
		d.pool(p, s.members(p))
	}
	d.text("}\n")
	return d.flush()
}

// planeDump answers "DumpTree".
func (s *Server) planeDump(w http.ResponseWriter, p *pool) error {
	done, err := s.transfer()
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	d := newDumper(&steady{w: w, control: http.NewResponseController(w)})
	d.text(`{"TreeDump":[`)
	for _, r := range s.members(p) {
		d.rank(r)
	}
	d.text("]}\n")
	if d.flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// dumper writes events. What it writes after an error goes nowhere; flush returns
// the first.
type dumper struct {
	w      *bufio.Writer
	line   []byte
	events int // written since the last array began
	err    error
}

func newDumper(w io.Writer) *dumper { return &dumper{w: bufio.NewWriterSize(w, 64<<10)} }

func (d *dumper) text(s string) {
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

func (d *dumper) flush() error {
	if d.err == nil {
		d.err = d.w.Flush()
	}
	return d.err
}

// mark is how far a rank had come when it was dumped.
type mark struct {
	Worker kv.WorkerID `json:"worker_id"`
	Rank   uint32      `json:"dp_rank"`
	Epoch  uint64      `json:"epoch"`
	// LastEventID is absent for a rank from which nothing has come.
	LastEventID *uint64 `json:"last_event_id"`
	Blocks      int     `json:"blocks"`
}

// pool writes the member of one index. The marks of its ranks come last, because
// they belong to the copies that were written.
func (d *dumper) pool(p *pool, ranks []*rank) {
	d.text(quoteJSON(p.key.String()) + `:{"model_name":` + quoteJSON(p.key.model) + `,"routing_group":` + quoteJSON(p.key.group) +
		`,"block_size":` + strconv.Itoa(p.blockSize) + `,"events":[`)
	d.events = 0
	marks := make([]mark, 0, len(ranks))
	for _, r := range ranks {
		if d.err != nil {
			return
		}
		if m, ok := d.rank(r); ok {
			marks = append(marks, m)
		}
	}
	tail, err := json.Marshal(marks)
	if err != nil {
		panic(err) // our own type
	}
	d.text(`],"ranks":` + string(tail) + "}")
}

// rank writes what a rank holds, each event with the rank's last id.
func (d *dumper) rank(r *rank) (mark, bool) {
	r.mu.Lock()
	m := mark{Worker: r.src.Worker, Rank: r.src.Rank, Epoch: r.epoch}
	id, known, gone := r.last, r.known, r.gone
	copied, ok := r.pool.index.Dump(r.src)
	r.mu.Unlock()
	if gone {
		return m, false
	}
	if known {
		m.LastEventID = &id
	}
	if !ok {
		return m, true
	}
	m.Blocks = copied.Blocks
	for ev := range copied.All() {
		d.event(r.src, id, ev)
		if d.err != nil {
			break
		}
	}
	return m, true
}

func (d *dumper) event(src kv.Source, id uint64, ev *kv.Event) {
	d.line = d.line[:0]
	if d.events++; d.events > 1 {
		d.line = append(d.line, ',')
	}
	d.line = append(d.line, '\n')
	d.line, d.err = kv.AppendJSON(d.line, src, id, ev)
	if d.err == nil {
		_, d.err = d.w.Write(d.line)
	}
}

// quoteJSON returns a name as JSON.
func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be marshalled
	}
	return string(b)
}
