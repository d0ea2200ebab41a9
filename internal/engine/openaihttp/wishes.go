package openaihttp

import (
	"net/http"
	"slices"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// PlainEdits appends the edits of a body by which most servers understand the wishes
// of r, and returns a new slice. Priority and the bound on thinking are left out: what
// servers make of them differs.
func PlainEdits(edits []openai.Edit, r *engine.Request) []openai.Edit {
	edits = ModelEdits(slices.Clip(edits), r, r.Model)
	edits = SaltEdits(edits, r, r.Salt)
	if r.Greedy {
		edits = append(edits, GreedyEdits...)
	}
	return UsageEdits(edits, r)
}

// ModelEdits appends the one that has the body name this model, unless it does or the
// name is empty.
func ModelEdits(edits []openai.Edit, r *engine.Request, name string) []openai.Edit {
	if name == "" {
		return edits
	}
	if own, ok := r.Body.Get("model").Text(); ok && own == name {
		return edits
	}
	return append(edits, openai.Edit{Key: "model", Value: openai.AppendString(nil, name)})
}

// SetHeader sets a header of r, whatever the client's was.
func SetHeader(r *engine.Request, key, value string) {
	if r.Header == nil {
		r.Header = make(http.Header, 8)
	}
	r.Header.Set(key, value)
}

// SaltEdits appends those that have the body say this salt, if r has one.
func SaltEdits(edits []openai.Edit, r *engine.Request, salt string) []openai.Edit {
	switch {
	case r.Salt != "":
		return append(edits, openai.Edit{Key: "cache_salt", Value: openai.AppendString(nil, salt)})
	case r.Unsalted:
		return append(edits, openai.Edit{Key: "cache_salt"})
	}
	return edits
}

// GreedyEdits make a server take the most likely token, whatever the body says.
var GreedyEdits = []openai.Edit{
	{Key: "temperature", Value: []byte("0")},
	{Key: "top_p", Value: []byte("1")},
	{Key: "top_k"}, // some refuse one with temperature 0
}

// UsageEdits appends those that ask for the usage at the end of a stream, if r wishes
// it.
func UsageEdits(edits []openai.Edit, r *engine.Request) []openai.Edit {
	if !r.Usage {
		return edits
	}
	options, err := openai.ParseObject(r.Body.Get("stream_options"))
	value := []byte(`{"include_usage":true}`)
	if err == nil {
		value = options.Edit([]openai.Edit{{Key: "include_usage", Value: []byte("true")}}).Bytes()
	}
	return append(edits, openai.Edit{Key: "stream_options", Value: value})
}
