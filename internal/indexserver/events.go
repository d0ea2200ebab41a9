package indexserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
)

// The reasons for which events are skipped.
const (
	skipMalformed    = "malformed"      // it cannot be read
	skipUnregistered = "not_registered" // its worker is not, or no more
)

// eventsBody says what became of events.
type eventsBody struct {
	// Applied counts events that were taken in, Stale those that had come before.
	Applied int `json:"applied"`
	Stale   int `json:"stale"`
	// Missed counts ids that were passed over and will be stale when they come.
	Missed  uint64         `json:"missed"`
	Skipped map[string]int `json:"skipped"`
	// Errors are the first few reasons in words.
	Errors []string `json:"errors,omitempty"`
}

// maxErrors is how many events an answer explains.
const maxErrors = 8

func (b *eventsBody) skip(reason string, err error) {
	b.Skipped[reason]++
	if len(b.Errors) < maxErrors {
		b.Errors = append(b.Errors, err.Error())
	}
}

// events takes in what workers say about their caches. Events of one rank with the
// same id that follow each other are one batch. An id that is not above the last of
// the rank is stale, unless the epoch in the URL is a later one, with which a rank
// begins anew and empty.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	body, release, err := s.readBody(w, r, jsonForm, linesForm, msgpackForm)
	defer release()
	if err != nil {
		return err
	}
	p, err := s.addressed(r)
	if err != nil {
		return err
	}
	epoch, err := epochOf(r.URL.Query())
	if err != nil {
		return err
	}
	in := intake{s: s, p: p, epoch: epoch, out: eventsBody{Skipped: make(map[string]int)}}
	switch encodingOf(r.Header) {
	case msgpackForm:
		err = in.msgpack(body)
	case linesForm:
		in.lines(body)
	default:
		err = in.json(body)
	}
	in.flush()
	if err != nil {
		return &failure{status: http.StatusBadRequest, err: err,
			message: fmt.Sprintf("after %d events, which were taken in: %v", in.out.Applied, err)}
	}
	reply(w, http.StatusOK, in.out)
	return nil
}

// epochOf returns the epoch that the URL names, if it does.
func epochOf(q url.Values) (*uint64, error) {
	text := q.Get("epoch")
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, invalid("epoch", "expected a whole number of 64 bits, got %s", shortQuote(text))
	}
	return &n, nil
}

// intake takes events of one body in.
type intake struct {
	s     *Server
	p     *pool
	epoch *uint64
	batch *kv.Batch // not applied yet: more of it may follow
	out   eventsBody
}

// lines reads an event from each line.
func (in *intake) lines(body []byte) {
	for line := range bytes.Lines(body) {
		if line = trimSpace(line); len(line) > 0 {
			in.add(kv.ParseJSON(line))
		}
	}
}

// json reads events one after another, or an array of them.
func (in *intake) json(body []byte) error {
	v := newValues(bytes.NewReader(body), len(body)+1)
	one := func() error {
		raw, err := v.value()
		if err != nil {
			return err
		}
		in.add(kv.ParseJSON(raw))
		return nil
	}
	switch c, err := v.next(); {
	case err == io.EOF:
		return nil
	case c == '[':
		if err := v.array(one); err != nil {
			return err
		}
		return v.finish()
	}
	for {
		if err := one(); err != nil {
			return err
		}
		if _, err := v.next(); err == io.EOF {
			return nil
		}
	}
}

// msgpack reads events one after another, or arrays of them.
func (in *intake) msgpack(body []byte) error {
	for len(body) > 0 {
		raw, rest, err := nextMsgpack(body)
		if err != nil {
			return err
		}
		body = rest
		if msgp.NextType(raw) != msgp.ArrayType {
			in.add(kv.ParseMsgpack(raw))
			continue
		}
		n, elements, err := msgp.ReadArrayHeaderBytes(raw)
		if err != nil {
			return err
		}
		if n > 0 && !isContainer(msgp.NextType(elements)) { // an event as an array of its members
			in.add(kv.ParseMsgpack(raw))
			continue
		}
		for range n {
			if raw, elements, err = nextMsgpack(elements); err != nil {
				return err
			}
			in.add(kv.ParseMsgpack(raw))
		}
	}
	return nil
}

// nextMsgpack splits the next object off.
func nextMsgpack(b []byte) (object, rest []byte, err error) {
	rest, err = msgp.Skip(b)
	if err != nil {
		return nil, nil, fmt.Errorf("malformed msgpack: %w", err)
	}
	return b[:len(b)-len(rest)], rest, nil
}

func isContainer(t msgp.Type) bool { return t == msgp.MapType || t == msgp.ArrayType }

// add takes one event in, or counts that it could not be read.
func (in *intake) add(b *kv.Batch, err error) {
	if err != nil {
		in.p.malformed.Add(1)
		in.out.skip(skipMalformed, err)
		return
	}
	if in.batch != nil && in.batch.Source == b.Source && in.batch.Seq == b.Seq {
		in.batch.Events = append(in.batch.Events, b.Events...)
		return
	}
	in.flush()
	in.batch = b
}

// flush applies the batch at hand.
func (in *intake) flush() {
	b := in.batch
	if b == nil {
		return
	}
	in.batch = nil
	r := in.s.lookup(in.p, b.Source)
	switch verdict, missed := r.apply(b, in.epoch, in.s.cfg.Record); verdict {
	case taken:
		in.out.Applied += len(b.Events)
		in.out.Missed += missed
	case stale:
		in.out.Stale += len(b.Events)
	case refused:
		for range b.Events {
			in.out.skip(skipUnregistered, fmt.Errorf("worker_id: worker %d is not registered for model %s", b.Source.Worker, quoted(in.p.key)))
		}
	}
}

// verdict is what became of a batch.
type verdict uint8

const (
	taken verdict = iota
	stale
	refused // by a rank that is not there
)

// apply takes a batch in, unless it came before or the rank is nil or gone. It
// returns how many batches are missing in front of it. If there is a record it has
// the batch, too.
func (r *rank) apply(b *kv.Batch, epoch *uint64, record kv.Applier) (v verdict, missed uint64) {
	if r == nil {
		return refused, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return refused, 0
	}
	if epoch != nil && *epoch != r.epoch {
		if *epoch < r.epoch {
			r.stale += uint64(len(b.Events))
			return stale, 0
		}
		r.pool.index.ClearRank(r.src)
		r.epoch, r.known = *epoch, false
		r.restarts++
	}
	if r.known {
		if b.Seq <= r.last {
			r.stale += uint64(len(b.Events))
			return stale, 0
		}
		if missed = b.Seq - r.last - 1; missed > 0 {
			r.gaps++
			r.missed += missed
		}
	}
	b.Epoch = r.epoch
	if err := r.pool.index.Apply(b); err != nil {
		panic(err) // an index takes every batch
	}
	if record != nil {
		_ = record.Apply(b) // it counts what it cannot take
	}
	r.known, r.last = true, b.Seq
	r.applied += uint64(len(b.Events))
	return taken, missed
}
