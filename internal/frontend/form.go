package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/nvext"
)

// form is the body of a request to the router itself, read member by member. The
// first error stays, and what is read after it means nothing. Close gives back what
// it holds.
type form struct {
	openai.Object
	server *Server
	held   int64
	err    error // an *openai.Error
}

// readForm reads a body that may have as many tokens as one to be answered.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request) *form {
	f := &form{server: s}
	raw, held, err := s.readBody(w, r, s.cfg.Limits.Body)
	f.held = held
	if err != nil {
		f.err = err
		return f
	}
	if f.Object, err = openai.ParseObject(raw); err != nil {
		f.err = &openai.Error{Code: openai.CodeInvalidJSON, Message: err.Error(), Err: err}
	}
	return f
}

func (f *form) close() {
	f.server.free(f.held)
	f.held = 0
}

// take takes n bytes from the budget and reports whether it did.
func (f *form) take(n int) bool {
	if f.err != nil {
		return false
	}
	if !f.server.hold(int64(n)) {
		f.err = overBudget()
		return false
	}
	f.held += int64(n)
	return true
}

func (f *form) fail(code openai.Code, field, expected string) {
	if f.err == nil {
		f.err = &openai.Error{Code: code, Param: field, Message: field + ": expected " + expected}
	}
}

// wrong fails because a value has the wrong type, or is a number that does not fit.
func (f *form) wrong(field, expected string, got openai.Value) {
	what := got.TypeName()
	if got.Kind() == '0' {
		what = short(string(got))
	}
	f.fail(openai.CodeInvalidType, field, expected+", got "+what)
}

// text returns a string, empty if there is none.
func (f *form) text(field string) string {
	v := f.Get(field)
	if !v.Present() {
		return ""
	}
	s, ok := v.Text()
	if !ok {
		f.wrong(field, "a string", v)
	}
	return s
}

// number returns a number between two others, 0 if there is none.
func (f *form) number(field string, least, most float64) float64 {
	v := f.Get(field)
	if !v.Present() {
		return 0
	}
	n, err := strconv.ParseFloat(string(v), 64)
	switch {
	case v.Kind() != '0' || err != nil && !errors.Is(err, strconv.ErrRange):
		f.wrong(field, "a number", v)
	case !(n >= least && n <= most):
		f.fail(openai.CodeInvalidValue, field, fmt.Sprintf("a number from %g to %g, got %s", least, most, short(string(v))))
	}
	return n
}

// uint32 returns a whole number of 32 bits, 0 if there is none.
func (f *form) uint32(field string) uint32 {
	v := f.Get(field)
	if !v.Present() {
		return 0
	}
	n, ok := v.Uint()
	if !ok || n > math.MaxUint32 {
		f.wrong(field, expectedUint32, v)
	}
	return uint32(n)
}

const expectedUint32 = "a whole number from 0 to 4294967295"

// tokens returns token ids. Given says whether the field is there.
func (f *form) tokens(field string) (ids []uint32, given bool) {
	v := f.Get(field)
	if !v.Present() {
		return nil, false
	}
	if v.Kind() != '[' {
		f.wrong(field, "an array of token ids", v)
		return nil, true
	}
	n := bytes.Count(v, []byte{','}) + 1
	if !f.take(4 * n) {
		return nil, true
	}
	ids = make([]uint32, 0, n)
	_ = v.Elements(func(e openai.Value) bool { // checked with what is around it
		id, ok := e.Uint()
		if !ok || id > math.MaxUint32 {
			f.wrong(fmt.Sprintf("%s[%d]", field, len(ids)), expectedUint32, e)
		}
		ids = append(ids, uint32(id))
		return f.err == nil
	})
	return ids, true
}

// objectBytes is what an object of a block takes.
const objectBytes = 48

// objects returns the images and the like in the blocks of a prompt: a member for
// each block, the last of which need not be full.
func (f *form) objects(field string, tokens, blockSize int) [][]kv.MMObject {
	v := f.Get(field)
	if !v.Present() {
		return nil
	}
	if v.Kind() != '[' {
		f.wrong(field, "an array with an element for each block", v)
		return nil
	}
	if !f.take(objectBytes * (bytes.Count(v, []byte{','}) + 1)) {
		return nil
	}
	var out [][]kv.MMObject
	any := false
	_ = v.Elements(func(e openai.Value) bool {
		var in []kv.MMObject
		if e.Present() {
			in = f.blockObjects(fmt.Sprintf("%s[%d]", field, len(out)), e)
			any = any || len(in) > 0
		}
		out = append(out, in)
		return f.err == nil
	})
	switch blocks := (tokens + blockSize - 1) / max(blockSize, 1); {
	case f.err != nil:
	case blockSize < 1 && any:
		f.fail(openai.CodeInvalidValue, field, "null elements only: the workers of this model do not agree on a block size")
	case blockSize < 1:
		return nil
	case len(out) != blocks && len(out) != tokens/blockSize:
		f.fail(openai.CodeInvalidValue, field, fmt.Sprintf(
			"a list with one element for each block of %d tokens, %d in all, got %d", blockSize, blocks, len(out)))
	}
	return out
}

// blockObjects returns the objects of one block.
func (f *form) blockObjects(path string, v openai.Value) (out []kv.MMObject) {
	o, err := openai.ParseObject(v)
	if err != nil {
		f.wrong(path, "null or an object with mm_objects", v)
		return nil
	}
	list := o.Get("mm_objects")
	if err := list.Elements(func(e openai.Value) bool {
		at := fmt.Sprintf("%s.mm_objects[%d]", path, len(out))
		in, err := openai.ParseObject(e)
		if err != nil {
			f.wrong(at, "an object with mm_hash", e)
			return false
		}
		h, ok := in.Get("mm_hash").Uint()
		if !ok {
			f.wrong(at+".mm_hash", "a whole number of 64 bits", in.Get("mm_hash"))
		}
		out = append(out, kv.MMObject{Hash: kv.MMHash(h)})
		return f.err == nil
	}); err != nil {
		f.wrong(path+".mm_objects", "an array", list)
	}
	return out
}

// constraints reads the taints that a worker must or should have.
func (f *form) constraints(q *router.Request) {
	v := f.Get("routing_constraints")
	if !v.Present() || f.err != nil {
		return
	}
	var c nvext.RoutingConstraints
	if err := json.Unmarshal(v, &c); err != nil {
		e := &openai.Error{Code: openai.CodeInvalidType, Param: "routing_constraints", Message: err.Error(), Err: err}
		var field *nvext.FieldError
		if errors.As(err, &field) {
			e.Param, e.Message = field.Path, field.Error()
		}
		f.err = e
		return
	}
	q.RequiredTaints, q.PreferredTaints = c.RequiredTaints, c.PreferredTaints
}

// model returns the model that the body names, or the only one that is served if it
// names none, and with lora_name an adapter of it.
func (f *form) model() *router.Model {
	name, adapter := f.text("model"), f.text("lora_name")
	if f.err != nil {
		return nil
	}
	m, err := f.server.servedModel(name)
	if err == nil && adapter != "" && m.ID != adapter {
		m, err = f.server.adapterOf(m, adapter)
	}
	if err != nil {
		f.err = err
		return nil
	}
	return m
}

// servedModel returns the model of that name, or the only one that is no adapter if
// there is no name.
func (s *Server) servedModel(name string) (*router.Model, error) {
	if name != "" {
		m, err := s.router.Lookup(name)
		if err != nil {
			return nil, s.unknownModel(name)
		}
		return m, nil
	}
	var found *router.Model
	n := 0
	for _, st := range s.router.Status() {
		if !st.Model.Adapter && st.Discovered() {
			found = st.Model
			n++
		}
	}
	switch n {
	case 1:
		return found, nil
	case 0:
		return nil, &openai.Error{Code: openai.CodeModelUnavailable, Param: "model",
			Message: "no worker serves a model at the moment, please retry later"}
	default:
		return nil, &openai.Error{Code: openai.CodeMissing, Param: "model",
			Message: fmt.Sprintf("model: expected the name of a model, since %d are served", n)}
	}
}

// adapterOf returns the adapter of m of that name, which may leave out the model's.
func (s *Server) adapterOf(m *router.Model, name string) (*router.Model, error) {
	for _, full := range [...]string{name, m.ID + ":" + name} {
		if a, err := s.router.Lookup(full); err == nil && a.Adapter && a.Parent == m.ID {
			return a, nil
		}
	}
	return nil, &openai.Error{Code: openai.CodeModelNotFound, Param: "lora_name",
		Message: fmt.Sprintf("lora_name: no worker serves the adapter `%s` of the model `%s`", short(name), short(m.ID))}
}
