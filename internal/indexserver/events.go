package indexserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
)

// The reasons for which events are skipped.
const (
	skipMalformed    = "malformed"      // it cannot be read
	skipUnregistered = "not_registered" // its worker is not, or no more
	skipRanks        = "too_many_ranks" // its rank is not registered, and there is no room for it
)

var skipReasons = [...]string{skipMalformed, skipUnregistered, skipRanks}

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

const (
	maxErrors    = 8       // events that an answer explains
	maxMalformed = 1 << 17 // events of one body that cannot be read
)

// events takes in what workers say about their caches. Events of one rank with the
// same id that follow each other are one batch. An id that is not above the last of
// the rank is stale, unless the epoch in the URL is a later one, with which a rank
// begins anew and empty.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	body, held, err := s.readBody(w, r, jsonForm, linesForm, msgpackForm)
	defer held.release()
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
	in := intake{s: s, p: p, held: held, epoch: epoch, out: eventsBody{Skipped: make(map[string]int)}}
	switch encodingOf(r.Header) {
	case msgpackForm:
		err = in.msgpack(body)
	case linesForm:
		err = in.lines(body)
	default:
		err = in.json(body)
	}
	var f *failure
	if !errors.As(err, &f) { // or else what is left comes again, and then it must not be stale
		if last := in.flush(); err == nil {
			err = last
		}
	}
	if err != nil {
		out := &failure{status: http.StatusBadRequest, message: err.Error(), err: err}
		if errors.As(err, &f) {
			out.status, out.field, out.message = f.status, f.field, f.message
		}
		out.message = fmt.Sprintf("after %d events, which were taken in: %s", in.out.Applied, out.message)
		return out
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
	held  *held
	epoch *uint64
	batch *kv.Batch // not applied yet: more of it may follow
	size  int64     // bytes of it
	out   eventsBody
}

// lines reads an event from each line.
func (in *intake) lines(body []byte) error {
	for line := range bytes.Lines(body) {
		if line = trimSpace(line); len(line) > 0 {
			if err := in.addJSON(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// json reads events one after another, or an array of them.
func (in *intake) json(body []byte) error {
	v := newValues(bytes.NewReader(body), len(body)+1)
	one := func() error {
		raw, err := v.value()
		if err != nil {
			return err
		}
		return in.addJSON(raw)
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
		if msgp.NextType(raw) == msgp.ArrayType {
			err = in.msgpackArray(raw)
		} else {
			err = in.addMsgpack(raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// msgpackArray reads events, or an event that is an array of its members.
func (in *intake) msgpackArray(raw []byte) error {
	n, elements, err := msgp.ReadArrayHeaderBytes(raw)
	if err != nil {
		return err
	}
	if n > 0 && !isContainer(msgp.NextType(elements)) {
		return in.addMsgpack(raw)
	}
	for range n {
		if raw, elements, err = nextMsgpack(elements); err != nil {
			return err
		}
		if err := in.addMsgpack(raw); err != nil {
			return err
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

// eventBytes is about what an event takes in memory besides its blocks.
const eventBytes = 256

// addJSON takes one event in.
func (in *intake) addJSON(raw []byte) error {
	return in.add(kv.ParseJSON, raw, bytes.Count(raw, []byte{','})+1)
}

// addMsgpack takes one event in. A hash may be as short as a byte.
func (in *intake) addMsgpack(raw []byte) error { return in.add(kv.ParseMsgpack, raw, len(raw)) }

// add takes one event in that has at most so many blocks, or counts that it could not
// be read. It fails when there is no room for it, when too many could not be read, and
// as flush does.
func (in *intake) add(parse func([]byte) (*kv.Batch, error), raw []byte, blocks int) error {
	most := eventBytes + int64(blocks)*blockBytes
	if err := in.held.take(most); err != nil {
		return err
	}
	b, err := parse(raw)
	if err != nil {
		in.held.give(most)
		in.skip(skipMalformed, 1, func() error { return err })
		if in.out.Skipped[skipMalformed] == maxMalformed {
			return fmt.Errorf("%d events that cannot be read, the last: %s", maxMalformed, clip(err.Error()))
		}
		return nil
	}
	size := eventBytes + int64(len(b.Events[0].Blocks))*blockBytes
	in.held.give(most - size)
	if in.batch != nil && in.batch.Source == b.Source && in.batch.Seq == b.Seq {
		in.batch.Events = append(in.batch.Events, b.Events...)
		in.size += size
		return nil
	}
	if err := in.flush(); err != nil {
		return err
	}
	in.batch, in.size = b, size
	return nil
}

// skip counts events that are left out, and explains the first.
func (in *intake) skip(reason string, events int, why func() error) {
	in.p.skipped[reason].Add(uint64(events))
	in.out.Skipped[reason] += events
	if len(in.out.Errors) < maxErrors {
		in.out.Errors = append(in.out.Errors, clip(why().Error()))
	}
}

// flush applies the batch at hand. It fails when an event socket tells of the rank.
func (in *intake) flush() error {
	b := in.batch
	if b == nil {
		return nil
	}
	in.batch = nil
	defer in.held.give(in.size)
	r, err := in.s.lookup(in.p, b.Source)
	if err == nil {
		switch verdict, missed := r.apply(time.Now(), b, in.epoch, in.s.cfg.Record); verdict {
		case taken:
			in.out.Applied += len(b.Events)
			in.out.Missed += missed
		case stale:
			in.out.Stale += len(b.Events)
		case refused:
			err = errUnregistered
		case followed:
			return twoSources(in.p.key, b.Source)
		}
	}
	if err != nil {
		in.skip(skipReason(err), len(b.Events), func() error { return in.s.refusal(err, "worker_id", in.p, b.Source) })
	}
	return nil
}

// skipReason is the reason for which there is no rank.
func skipReason(err error) string {
	if err == errTooManyRanks {
		return skipRanks
	}
	return skipUnregistered
}

// twoSources refuses what would change a rank that an event socket tells of.
func twoSources(key poolKey, src kv.Source) *failure {
	return &failure{status: http.StatusConflict, field: "worker_id", message: fmt.Sprintf(
		"rank %d of worker %d of model %s is told of by an event socket, and cannot have two sources: unregister it first",
		src.Rank, src.Worker, quoted(key))}
}

// verdict is what became of a batch.
type verdict uint8

const (
	taken verdict = iota
	stale
	refused  // by a rank that is gone
	followed // that is, there is a socket that tells of the rank
)

// apply takes a batch in, unless it came before or the rank is gone. It returns how
// many batches are missing in front of it. If there is a record it has the batch, too.
func (r *rank) apply(now time.Time, b *kv.Batch, epoch *uint64, record kv.Applier) (v verdict, missed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.gone:
		return refused, 0
	case r.followed():
		return followed, 0
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
	r.take(now, b, record)
	return taken, missed
}

// followed reports whether a socket tells of the rank. r.mu is held.
func (r *rank) followed() bool { return r.socket != nil || r.told }
