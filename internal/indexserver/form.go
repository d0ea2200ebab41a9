package indexserver

import (
	"bytes"
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
	maxHashes    = 1 << 20 // of one prompt, that is, its blocks
)

// defaultGroup is the routing group of who names none.
const defaultGroup = "default"

// form reads the members of a JSON object. Of what is wrong, the first is kept in
// err; reads after it return nothing.
type form struct {
	o    openai.Object
	held *held // pays for prompts
	err  error
}

// parseForm reads an object. Without memory to pay from, it can have no prompt.
func parseForm(raw []byte, held *held) (*form, error) {
	o, err := openai.ParseObject(raw)
	if err != nil {
		return nil, &failure{status: http.StatusBadRequest, message: err.Error(), err: err}
	}
	return &form{o: o, held: held}, nil
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
	case !utf8.ValidString(s), openai.LoneSurrogate(v) >= 0:
		f.fail(field, "expected valid Unicode")
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

// What is taken of the memory for all requests, in bytes.
const (
	blockBytes  = 32 // for a block, and what an answer says about it
	objectBytes = 48 // for an object in a prompt, and to hash it
	tokenBytes  = 4
)

// take asks for memory. It reports whether it may be used.
func (f *form) take(bytes int) bool {
	if f.err == nil {
		f.err = f.held.take(int64(bytes))
	}
	return f.err == nil
}

// blocks returns how many blocks an array of numbers has at most, each of so many of
// them, and takes the memory for them.
func (f *form) blocks(field string, v openai.Value, size int) int {
	n := (bytes.Count(v, []byte{','}) + 1) / size
	if n > maxHashes {
		f.fail(field, "expected at most %d blocks, got %d", maxHashes, n)
	}
	f.take(n * blockBytes)
	return n
}

// prompt returns the blocks of the prompt whose tokens are in a field, under the
// adapter, salt and objects beside it.
func (f *form) prompt(field string, blockSize int) []kv.Block {
	v := f.array(field)
	seed := kv.HashSeed(f.text("lora_name"), f.text("cache_salt"))
	n := f.blocks(field, v, blockSize)
	objects := f.objects("block_mm_infos", n)
	if !f.take(blockSize * tokenBytes) {
		return nil
	}
	out, ids := make([]kv.Block, 0, n), make([]uint32, 0, blockSize)
	err := integers(v, func(negative bool, n uint64) bool {
		if ids = append(ids, uint32(n)); len(ids) == blockSize {
			var in []kv.MMObject
			if len(out) < len(objects) {
				in = objects[len(out)]
			}
			out = appendBlock(out, kv.HashTokensMM(seed, ids, in))
			ids = ids[:0]
		}
		return n <= math.MaxUint32 && (!negative || n == 0)
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
	n := f.blocks(field, v, 1)
	if f.err != nil {
		return nil
	}
	out := make([]kv.Block, 0, n)
	err := integers(v, func(negative bool, n uint64) bool {
		if negative {
			if n > 1<<63 {
				return false
			}
			n = -n
		}
		out = appendBlock(out, kv.LocalHash(n))
		return true
	})
	if err != nil {
		f.fail(field, "%v: expected hashes, whole numbers of 64 bits", err)
	}
	return out
}

// appendBlock appends the next block of a prompt.
func appendBlock(prompt []kv.Block, local kv.LocalHash) []kv.Block {
	id := kv.BlockID(local)
	if len(prompt) > 0 {
		id = kv.Chain(prompt[len(prompt)-1].ID, local)
	}
	return append(prompt, kv.Block{ID: id, Tokens: local})
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
			return fmt.Errorf("element %d is not a whole number: %s", at, shownFirst(v[begin:]))
		}
		if !yield(negative, n) {
			return fmt.Errorf("element %d is out of range", at)
		}
	}
}

// shownFirst is shown for the first of the values in the rest of an array. Of what is
// longer than a number it says only the type.
func shownFirst(v openai.Value) string {
	if v.Kind() != '0' {
		return v.TypeName()
	}
	return shown(v[:bytes.IndexAny(v, ",] \t\r\n")])
}

// shown returns the beginning of a value for a message.
func shown(v openai.Value) string {
	const enough = 40
	if len(v) > enough {
		return strconv.QuoteToASCII(string(v[:enough])) + "…"
	}
	return string(v)
}
