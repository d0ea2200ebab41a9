package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// recording collects requests that a server recorded when they ended, and so not
// in the order of their arrival: rows of this package, or Dynamo's.
type recording struct {
	opts      ReadOptions
	format    string
	maxTokens int
	blockSize int // 0 until a row says it
	records   []record
	skipped   Skipped
	ids       interner
	arena     idArena
	raw       []uint64
	names     map[string]string // of sessions and keys, each kept once
	models    map[string]uint32 // those seen, numbered
	seen      map[string]bool   // request ids, where they must be unique
	agents    *bool             // whether requests name the agent that sent them
}

// record is one request on the clock of the recording.
type record struct {
	Request // Arrival since the epoch; Blocks as far as they are known
	// key is the name of the API key, within which sessions are named.
	key string
	// end is when it was answered, on the same clock; negative if not known.
	end time.Duration
}

func newRecording(format string, opts ReadOptions, maxTokens int) *recording {
	return &recording{
		opts:      opts,
		format:    format,
		maxTokens: maxTokens,
		names:     make(map[string]string),
		models:    make(map[string]uint32),
		seen:      make(map[string]bool),
	}
}

func (c *recording) add(o *openai.Object) error {
	read := c.addRow
	if c.format == "dynamo" {
		read = c.addDynamo
	}
	err := read(o)
	var why reason
	if errors.As(err, &why) {
		*c.skipped.of(why)++
		return nil
	}
	return err
}

// rowStart is how the lines begin that a [Writer] writes.
var rowStart = []byte(`{"schema":"` + Schema + `",`)

// addRow takes a [Row] in, of which it reads only what makes traffic.
func (c *recording) addRow(o *openai.Object) error {
	if schema, _ := o.Get("schema").Text(); schema != Schema {
		return expected("schema", Schema, o.Get("schema"))
	}
	r := record{end: -1}
	var err error
	if r.Model, err = c.model("model", o.Get("model")); err != nil {
		return err
	}
	if c.opts.Model != "" && r.Model != c.opts.Model {
		return nil
	}
	// Of a request that did not run, nothing else has to make sense.
	if err := c.lengths(&r, o); err != nil {
		return err
	}
	if r.Arrival, err = instant("arrival_us", o.Get("arrival_us"), time.Microsecond); err != nil {
		return err
	}
	if r.ID, err = text("request_id", o.Get("request_id")); err != nil {
		return err
	}
	if r.Session, err = c.name("session_id", o.Get("session_id")); err != nil {
		return err
	}
	if r.key, err = c.name("key", o.Get("key")); err != nil {
		return err
	}
	if v := o.Get("hints"); v.Present() {
		if err := json.Unmarshal(v, &r.Hints); err != nil {
			return &memberError{"hints", err}
		}
	}
	if v := o.Get("total_time_ms"); v.Present() {
		total, err := millis("total_time_ms", v)
		if err != nil {
			return err
		}
		r.end = r.Arrival + total
	}
	c.raw = c.raw[:0]
	if v := o.Get("block_hashes"); v.Present() {
		if c.raw, err = appendHashes(c.raw, "block_hashes", v); err != nil {
			return err
		}
	}
	if len(c.raw) > 0 {
		if err := c.size("block_size", o.Get("block_size")); err != nil {
			return err
		}
		full := r.Input / c.blockSize
		if n := len(c.raw); n != full && n != blocksOf(r.Input, c.blockSize) {
			return &memberError{"block_hashes", fmt.Errorf("expected %d hashes of %d tokens for a prompt of %d, got %d", full, c.blockSize, r.Input, n)}
		}
	}
	return c.take(r)
}

// lengths reads how long prompt and answer are. It returns the reason if they are
// not those of one request that ran.
func (c *recording) lengths(r *record, o *openai.Object) error {
	outcome, _ := o.Get("outcome").Text()
	output := o.Get("output_tokens")
	if Outcome(outcome) == OutcomeRefused || !output.Present() {
		return notRun
	}
	for _, member := range []string{"prompts", "choices"} {
		if v := o.Get(member); v.Present() {
			if n, ok := v.Uint(); !ok {
				return expected(member, "a whole number", v)
			} else if n > 1 {
				return several
			}
		}
	}
	var err error
	if r.Output, err = c.length("output_tokens", output); err != nil {
		return err
	}
	if r.Output == 0 && Outcome(outcome) != OutcomeCompleted {
		return notRun
	}
	// What we counted belongs to the hashes; what the engine counted beats a guess.
	name, v := "input_tokens", o.Get("input_tokens")
	if o.Get("input_guessed").True() {
		name, v = pick(o, "engine_input_tokens", "input_tokens")
	}
	if r.Input, err = c.length(name, v); err != nil {
		return err
	}
	if r.Input == 0 {
		return notRun
	}
	return nil
}

// length reads a number of tokens. The engine says some of them: a number that
// cannot be true must not spoil the rows around it.
func (c *recording) length(member string, v openai.Value) (int, error) {
	n, ok := v.Uint()
	if !ok {
		return 0, expected(member, "a whole number", v)
	}
	if n > uint64(c.maxTokens) {
		return 0, tooLong
	}
	return int(n), nil
}

// take keeps a record, whose hashes are in raw. What different models have in
// their caches is never the same.
func (c *recording) take(r record) error {
	r.Blocks = c.arena.make(len(c.raw))
	if err := c.ids.intern(r.Blocks, c.raw, c.models[r.Model]); err != nil {
		return err
	}
	c.records = append(c.records, r)
	return nil
}

// size notes the block size, which is the same for all requests that are taken.
func (c *recording) size(member string, v openai.Value) error {
	n, err := count(member, v, 1, maxBlockSize)
	if err != nil {
		return err
	}
	if c.opts.BlockSize != 0 && n != c.opts.BlockSize {
		return otherBlockSize
	}
	if c.blockSize != 0 && n != c.blockSize {
		return &memberError{member, blockSizeError(fmt.Sprintf("expected %d as in the rows before, got %d: choose one of these sizes", c.blockSize, n))}
	}
	c.blockSize = n
	return nil
}

// name reads a string of which there are few.
func (c *recording) name(member string, v openai.Value) (string, error) {
	s, err := text(member, v)
	if err != nil || s == "" {
		return "", err
	}
	if known, ok := c.names[s]; ok {
		return known, nil
	}
	c.names[s] = s
	return s, nil
}

// model reads the name of a model, and numbers it.
func (c *recording) model(member string, v openai.Value) (string, error) {
	s, err := c.name(member, v)
	if _, known := c.models[s]; err == nil && !known {
		c.models[s] = uint32(len(c.models))
	}
	return s, err
}

// trace puts the requests in order, links those of a session, and numbers the
// blocks.
func (c *recording) trace() (*Trace, error) {
	t := &Trace{BlockSize: cmp.Or(c.blockSize, c.opts.BlockSize, DefaultBlockSize), Format: c.format, Skipped: c.skipped}
	if len(c.records) == 0 {
		return t, c.checkModel()
	}
	slices.SortStableFunc(c.records, func(a, b record) int {
		order := cmp.Compare(a.Arrival, b.Arrival)
		if order == 0 && c.format == "dynamo" {
			order = cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.ID, b.ID))
		}
		return order
	})
	link(c.records)

	first := c.records[0].Arrival
	fresh := make([]uint32, len(c.ids.parents)) // 0 for a block that has no number yet
	next := uint32(0)
	t.Requests = make([]Request, len(c.records))
	for i := range c.records {
		r := c.records[i].Request
		r.Arrival -= first
		for k, id := range r.Blocks {
			if fresh[id] == 0 {
				next++
				fresh[id] = next
			}
			r.Blocks[k] = fresh[id] - 1
		}
		t.Requests[i] = r
	}
	return t, nil
}

// checkModel returns an error if rows of one model were asked for and there are
// only others.
func (c *recording) checkModel() error {
	if _, known := c.models[c.opts.Model]; known || c.opts.Model == "" {
		return nil
	}
	const most = 10
	var names []string
	for name := range c.models {
		if name != "" {
			names = append(names, strconv.Quote(name))
		}
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w for model %q, only for %s", ErrEmpty, c.opts.Model, strings.Join(names, ", "))
}

// link finds out which requests of a session followed the one before. One that
// came before that was answered did not wait for it. What clients call a session
// is one within their API key and one model; another of the same name gets a name
// of its own.
func link(records []record) {
	type session struct{ key, model, name string }
	type state struct {
		name string
		last int
	}
	sessions := make(map[session]state)
	taken := make(naming)
	for i := range records {
		taken.take(records[i].Session)
	}
	used := make(map[string]bool)
	for i := range records {
		r := &records[i]
		if r.Session == "" {
			continue
		}
		key := session{r.key, r.Model, r.Session}
		s, begun := sessions[key]
		if begun {
			before := &records[s.last]
			switch {
			case before.end < 0:
				r.Follows, r.Delay = true, r.Arrival-before.Arrival
			case before.end <= r.Arrival:
				r.Follows, r.DelayKnown, r.Delay = true, true, r.Arrival-before.end
			}
		} else if s.name = r.Session; used[s.name] {
			s.name = taken.another(s.name)
		} else {
			used[s.name] = true
		}
		r.Session, s.last = s.name, i
		sessions[key] = s
	}
}

// instant reads a time since the epoch as a whole number of units.
func instant(member string, v openai.Value, unit time.Duration) (time.Duration, error) {
	n, ok := v.Uint()
	if !ok || n > uint64(maxTime/unit) {
		return 0, expected(member, "a whole number, the time since 1970", v)
	}
	return time.Duration(n) * unit, nil
}

// appendHashes appends the elements of an array of strings of hexadecimal digits.
func appendHashes(dst []uint64, member string, v openai.Value) ([]uint64, error) {
	if v.Kind() != '[' {
		return dst, expected(member, "an array", v)
	}
	n := 0
	var bad openai.Value
	// The array is well-formed JSON, so Elements has nothing to say.
	_ = v.Elements(func(e openai.Value) bool {
		if e.Kind() == '"' {
			if id, ok := parseHash([]byte(e[1 : len(e)-1])); ok {
				dst = append(dst, uint64(id))
				n++
				return true
			}
		}
		bad = e
		return false
	})
	if bad != nil {
		return dst, expected(fmt.Sprintf("%s[%d]", member, n), "16 hexadecimal digits", bad)
	}
	return dst, nil
}
