package frontend

import (
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// Usage that only we asked for is hidden from the client, whose stream is to be what the
// engine sends to those who do not ask. An engine that is asked tells it in a last chunk,
// to which it moves what is otherwise at the end of the chunk before: llama.cpp its
// timings, vLLM its fingerprint. So a chunk that finishes a choice is held back until the
// next event, and gets those members back.

// heldChunk is a chunk that may have to get members.
type heldChunk struct {
	ev     openai.Event
	used   bool // it has a usage to hide
	extend bool // our nvext goes with it
}

// hideUsage takes the usage out of a chunk.
var hideUsage = []openai.Edit{{Key: "usage"}, {Key: "completion_usage"}}

// ofUsage are the members that a chunk has for no purpose of their own, or has only
// where usage is asked for, as vLLM's metrics.
var ofUsage = map[string]bool{
	"id": true, "object": true, "created": true, "model": true, "choices": true, "usage": true,
	"completion_usage": true, "metrics": true,
}

// dissolve hides a chunk without choices that is there for its usage. What else it tells
// goes to the chunk that is held back, if there is one.
func (st *stream) dissolve(ev *openai.Event, extend bool) error {
	var rest []openai.Edit
	if o, err := openai.ParseObject(ev.Data); err == nil {
		for i := range o.Len() {
			if key, v := o.At(i); !ofUsage[key] && v.Present() {
				rest = append(rest, openai.Edit{Key: key, Value: v})
			}
		}
	}
	switch {
	case st.held != nil:
		return st.release(rest)
	case len(rest) > 0:
		return st.rewrite(ev, append([]openai.Edit{{Key: "metrics"}}, hideUsage...), extend)
	default:
		return nil
	}
}

// release writes the chunk that is held back, if there is one, with more members.
func (st *stream) release(more []openai.Edit) error {
	h := st.held
	if h == nil {
		return nil
	}
	st.held = nil
	if h.used {
		more = append(more, hideUsage...)
	}
	return st.rewrite(&h.ev, more, h.extend)
}

// rewrite writes a chunk with the edits applied, and with our nvext if it is to have it.
// One with neither is written as it came.
func (st *stream) rewrite(ev *openai.Event, edits []openai.Edit, extend bool) error {
	raw := ev.Raw
	if len(edits) > 0 || extend {
		data := ev.Data
		if o, err := openai.ParseObject(data); err == nil {
			data = o.Edit(edits).Bytes()
		}
		if extend {
			st.extended = true
			data = addExt(data, st.response(time.Now()))
		}
		raw = ev.AppendWith(nil, data)
	}
	_, err := st.w.Write(raw)
	return err
}
