package kvfeed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/kv"
)

// Request is a question to a [Local], in its JSON form such as
//
//	{"worker_id":7,"dp_rank":0,"start_event_id":12,"end_event_id":null}
//
// Dynamo 1.0 leaves dp_rank out, because it asks every rank at an address of its
// own; the one who listens there sets it.
type Request struct {
	Worker kv.WorkerID `json:"worker_id"`
	Rank   *uint32     `json:"dp_rank,omitempty"`
	// Start and End are numbers of batches, both inclusive. Without Start the
	// question is what the rank holds now.
	Start *uint64 `json:"start_event_id"`
	End   *uint64 `json:"end_event_id"`
	// DumpFailed says that the asker knows the answer TreeDumpFailed.
	DumpFailed bool `json:"supports_tree_dump_failed,omitempty"`
}

// Source returns the rank that is asked about, 0 if none is named.
func (q *Request) Source() kv.Source {
	src := kv.Source{Worker: q.Worker}
	if q.Rank != nil {
		src.Rank = *q.Rank
	}
	return src
}

// marked reports whether the one who asks reads answers in the marked form, in which
// the events are in an object that also says up to which batch they reach. Dynamo
// 1.0 knows only the plain form, where they are an array. Readers here know both.
func (q *Request) marked() bool { return q.Rank != nil || q.DumpFailed }

// Encode writes the answer to a question as one JSON object, in the form that the
// one who asks reads. A dump is written as it is read and never in memory as a
// whole. If it fails on the way the object is left unfinished, which no reader
// takes for an empty cache, and Encode returns the error. An epoch other than 0 is
// told as "epoch".
func (a *Answer) Encode(w io.Writer, q Request) error {
	e := &encoder{w: w, src: q.Source(), marked: q.marked()}
	switch a.Kind {
	case Events:
		e.open("Events")
		for _, b := range a.Batches {
			e.batch(b)
		}
		e.close(a)
	case Dump:
		e.open("TreeDump")
		var id uint64
		for ev, err := range a.Dump {
			if err != nil {
				return fmt.Errorf("dump of worker %d rank %d: %w", e.src.Worker, e.src.Rank, err)
			}
			e.event(id, ev)
			id++
		}
		e.close(a)
	case TooNew:
		e.value("TooNew", wireTooNew{a.Start, a.End, a.Newest})
	case InvalidRange:
		e.value("InvalidRange", wireRange{a.Start, a.End})
	case DumpFailed:
		if q.DumpFailed {
			e.value("TreeDumpFailed", wireFailed{a.Last, a.message()})
			break
		}
		e.value("Error", a.message())
	default:
		e.value("Error", a.message())
	}
	return e.flush()
}

func (a *Answer) message() string {
	switch {
	case a.Err != nil:
		return a.Err.Error()
	case a.Kind == Gone:
		return "the batches asked for are gone"
	}
	return "no answer"
}

type wireFailed struct {
	Last    uint64 `json:"last_event_id"`
	Message string `json:"message"`
}

type wireTooNew struct {
	Start  *uint64 `json:"requested_start"`
	End    *uint64 `json:"requested_end"`
	Newest uint64  `json:"newest_available"`
}

type wireRange struct {
	Start *uint64 `json:"start_id"`
	End   *uint64 `json:"end_id"`
}

const encodeBuffer = 32 << 10

type encoder struct {
	w      io.Writer
	src    kv.Source
	marked bool
	buf    []byte
	more   bool // there was an event before
	err    error
}

func (e *encoder) open(tag string) {
	e.buf = append(e.buf, `{"`...)
	e.buf = append(e.buf, tag...)
	e.buf = append(e.buf, `":`...)
	if e.marked {
		e.buf = append(e.buf, `{"events":`...)
	}
	e.buf = append(e.buf, '[')
}

func (e *encoder) close(a *Answer) {
	e.buf = append(e.buf, ']')
	if e.marked {
		e.buf = append(e.buf, `,"last_event_id":`...)
		e.buf = strconv.AppendUint(e.buf, a.Last, 10)
		if a.Epoch != 0 {
			e.buf = append(e.buf, `,"epoch":`...)
			e.buf = strconv.AppendUint(e.buf, a.Epoch, 10)
		}
		e.buf = append(e.buf, '}')
	}
	e.buf = append(e.buf, '}')
}

func (e *encoder) batch(b *kv.Batch) {
	if len(b.Events) == 0 {
		e.event(b.Seq, &kv.Event{Kind: kv.Removed}) // says nothing, but its number
	}
	for i := range b.Events {
		e.event(b.Seq, &b.Events[i])
	}
}

func (e *encoder) event(id uint64, ev *kv.Event) {
	if e.err != nil {
		return
	}
	if e.more {
		e.buf = append(e.buf, ',')
	}
	e.more = true
	e.buf, e.err = kv.AppendJSON(e.buf, e.src, id, ev)
	if len(e.buf) >= encodeBuffer && e.err == nil {
		e.err = e.flush()
	}
}

func (e *encoder) value(tag string, v any) {
	e.buf, e.err = json.Marshal(map[string]any{tag: v})
}

func (e *encoder) flush() error {
	if e.err != nil {
		return e.err
	}
	_, e.err = e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return e.err
}

// ParseAnswer reads an answer about src in any of its forms. An answer that says
// that it failed is of such a kind and no error; what cannot be read, is about
// another rank, or holds only a part of the rank, is an error.
func ParseAnswer(raw []byte, src kv.Source) (Answer, error) {
	var w struct {
		Events   json.RawMessage
		TreeDump json.RawMessage
		Failed   *wireFailed `json:"TreeDumpFailed"`
		TooNew   *wireTooNew
		Invalid  *wireRange `json:"InvalidRange"`
		Error    *string
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Answer{}, fmt.Errorf("answer: %w", err)
	}
	switch {
	case w.Events != nil:
		a, err := parseEvents(w.Events, src)
		if err != nil {
			return Answer{}, fmt.Errorf("answer: Events: %w", err)
		}
		return a, nil
	case w.TreeDump != nil:
		a, err := parseDump(w.TreeDump, src)
		if err != nil {
			return Answer{}, fmt.Errorf("answer: TreeDump: %w", err)
		}
		return a, nil
	case w.Failed != nil:
		return Answer{Kind: DumpFailed, Last: w.Failed.Last, Err: errors.New(w.Failed.Message)}, nil
	case w.TooNew != nil:
		return Answer{Kind: TooNew, Start: w.TooNew.Start, End: w.TooNew.End, Newest: w.TooNew.Newest}, nil
	case w.Invalid != nil:
		return Answer{Kind: InvalidRange, Start: w.Invalid.Start, End: w.Invalid.End}, nil
	case w.Error != nil:
		return Answer{Err: errors.New(*w.Error)}, nil
	}
	return Answer{}, fmt.Errorf("answer: expected one of Events, TreeDump, TreeDumpFailed, TooNew, InvalidRange, Error")
}

// wireEvents is the object of events in the marked form.
type wireEvents struct {
	Events []json.RawMessage `json:"events"`
	Last   *uint64           `json:"last_event_id"`
	Epoch  uint64            `json:"epoch"`
	Scope  json.RawMessage   `json:"reset_scope"`
}

func unmarshalEvents(raw json.RawMessage) (w wireEvents, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = json.Unmarshal(raw, &w.Events)
		return w, err
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return w, err
	}
	if w.Events == nil {
		return w, fmt.Errorf("events: expected an array")
	}
	return w, nil
}

func parseEvents(raw json.RawMessage, src kv.Source) (Answer, error) {
	w, err := unmarshalEvents(raw)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Kind: Events, Epoch: w.Epoch}
	if w.Last != nil {
		a.Last, a.Known = *w.Last, true
	}
	for i, raw := range w.Events {
		b, err := parseEvent(raw, src)
		if err != nil {
			return Answer{}, fmt.Errorf("event %d: %w", i, err)
		}
		b.Epoch = w.Epoch
		if n := len(a.Batches); n > 0 && a.Batches[n-1].Seq == b.Seq {
			a.Batches[n-1].Events = append(a.Batches[n-1].Events, b.Events...)
		} else if n > 0 && a.Batches[n-1].Seq > b.Seq {
			return Answer{}, fmt.Errorf("event %d: event_id: expected at least %d, got %d", i, a.Batches[n-1].Seq, b.Seq)
		} else {
			a.Batches = append(a.Batches, b)
		}
	}
	return a, nil
}

func parseDump(raw json.RawMessage, src kv.Source) (Answer, error) {
	w, err := unmarshalEvents(raw)
	if err != nil {
		return Answer{}, err
	}
	if s := strings.ToLower(string(w.Scope)); s != "" && s != "null" && s != `"all"` {
		return Answer{}, fmt.Errorf("reset_scope: expected all of the rank, got %s", w.Scope)
	}
	var events []kv.Event
	for i, raw := range w.Events {
		b, err := parseEvent(raw, src)
		if err != nil {
			return Answer{}, fmt.Errorf("event %d: %w", i, err)
		}
		events = append(events, b.Events...)
	}
	a := Answer{Kind: Dump, Epoch: w.Epoch}
	if w.Last != nil && (*w.Last != 0 || len(events) > 0) { // 0 is also told when there was no batch
		a.Last, a.Known = *w.Last, true
	}
	a.Dump = func(yield func(*kv.Event, error) bool) {
		for i := range events {
			if !yield(&events[i], nil) {
				return
			}
		}
	}
	return a, nil
}

func parseEvent(raw []byte, src kv.Source) (*kv.Batch, error) {
	b, err := kv.ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	if b.Source != src {
		return nil, fmt.Errorf("expected worker %d rank %d, got worker %d rank %d",
			src.Worker, src.Rank, b.Source.Worker, b.Source.Rank)
	}
	return b, nil
}
