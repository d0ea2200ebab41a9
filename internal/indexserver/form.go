package indexserver

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

const (
	maxName      = 1024    // bytes of the name of a model or group
	maxBlockSize = 1 << 16 // tokens
	maxHashes    = 1 << 20 // of one query
)

// defaultGroup is the routing group of who names none.
const defaultGroup = "default"

// form reads the members of a JSON object. Of what is wrong, the first is kept in
// err; reads after it return nothing.
type form struct {
	o   openai.Object
	err error
}

func parseForm(raw []byte) (*form, error) {
	o, err := openai.ParseObject(raw)
	if err != nil {
		return nil, &failure{status: http.StatusBadRequest, message: err.Error(), err: err}
	}
	return &form{o: o}, nil
}

func (f *form) fail(field, format string, args ...any) {
	if f.err == nil {
		f.err = invalid(field, format, args...)
	}
}

// has reports whether a member is there and not null.
func (f *form) has(field string) bool { return f.o.Get(field).Present() }

// text returns a string, "" when it is absent or null.
func (f *form) text(field string) string {
	v := f.o.Get(field)
	if !v.Present() {
		return ""
	}
	s, ok := v.Text()
	switch {
	case !ok:
		f.fail(field, "expected a string, got %s", v.TypeName())
	case !utf8.ValidString(s):
		f.fail(field, "expected valid UTF-8")
	default:
		return s
	}
	return ""
}

// uint returns a whole number up to most; other is what an absent or null one means.
func (f *form) uint(field string, most, other uint64) uint64 {
	v := f.o.Get(field)
	if !v.Present() {
		return other
	}
	n, ok := v.Uint()
	if !ok || n > most {
		f.fail(field, "expected a whole number from 0 to %d, got %s", most, shown(v))
		return 0
	}
	return n
}

// model returns the model and group that a request is about.
func (f *form) model() poolKey {
	key := poolKey{model: f.text("model_name"), group: f.text("routing_group")}
	if key.group == "" {
		key.group = defaultGroup
	}
	if f.err == nil {
		f.err = key.check()
	}
	return key
}

// instance returns the worker that a request is about.
func (f *form) instance() kv.WorkerID {
	id := f.uint("instance_id", math.MaxUint64, 0)
	if id == 0 {
		f.fail("instance_id", "expected the id of a worker, a whole number from 1")
	}
	return kv.WorkerID(id)
}

func (f *form) rank() uint32 { return uint32(f.uint("dp_rank", math.MaxUint32, 0)) }

// tokens returns the ids of a prompt's tokens.
func (f *form) tokens(field string) []uint32 {
	v := f.array(field)
	if f.err != nil {
		return nil
	}
	out := make([]uint32, 0, len(v)/5)
	err := integers(v, func(negative bool, n uint64) bool {
		out = append(out, uint32(n))
		return !negative && n <= math.MaxUint32
	})
	if err != nil {
		f.fail(field, "%v: expected token ids, whole numbers from 0 to %d", err, uint32(math.MaxUint32))
	}
	return out
}

// hashes returns a prompt's blocks by their local hashes. Those above the largest
// int64 may be written as the negative number of the same bits.
func (f *form) hashes(field string) []kv.Block {
	v := f.array(field)
	if f.err != nil {
		return nil
	}
	out := make([]kv.Block, 0, min(len(v)/16+1, maxHashes))
	err := integers(v, func(negative bool, n uint64) bool {
		if negative {
			if n > 1<<63 {
				return false
			}
			n = -n
		}
		local := kv.LocalHash(n)
		id := kv.BlockID(local)
		if len(out) > 0 {
			id = kv.Chain(out[len(out)-1].ID, local)
		}
		out = append(out, kv.Block{ID: id, Tokens: local})
		return len(out) <= maxHashes
	})
	switch {
	case len(out) > maxHashes:
		f.fail(field, "expected at most %d hashes", maxHashes)
	case err != nil:
		f.fail(field, "%v: expected hashes, whole numbers of 64 bits", err)
	}
	return out
}

func (f *form) array(field string) openai.Value {
	v := f.o.Get(field)
	switch {
	case v == nil:
		f.fail(field, "missing: expected an array")
	case v.Kind() != '[':
		f.fail(field, "expected an array, got %s", v.TypeName())
	}
	return v
}

// integers calls yield for each element of an array, which is well-formed JSON,
// until it returns false. It returns an error that names the element which yield
// refused or which is no integer.
func integers(v openai.Value, yield func(negative bool, n uint64) bool) error {
	at := 0
	for i := 1; ; at++ {
		for v[i] <= ' ' || v[i] == ',' {
			i++
		}
		if v[i] == ']' {
			return nil
		}
		begin := i
		negative := v[i] == '-'
		if negative {
			i++
		}
		n, digits := uint64(0), 0
		for ; v[i] >= '0' && v[i] <= '9'; i, digits = i+1, digits+1 {
			d := uint64(v[i] - '0')
			if n > (math.MaxUint64-d)/10 {
				return fmt.Errorf("element %d is out of range", at)
			}
			n = 10*n + d
		}
		if c := v[i]; digits == 0 || c != ',' && c != ']' && c > ' ' {
			return fmt.Errorf("element %d is not a whole number: %s", at, shown(v[begin:]))
		}
		if !yield(negative, n) {
			return fmt.Errorf("element %d is out of range", at)
		}
	}
}

// shown returns the beginning of a value for a message.
func shown(v openai.Value) string {
	const enough = 40
	if len(v) > enough {
		return strconv.QuoteToASCII(string(v[:enough])) + "…"
	}
	return string(v)
}
