package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

// recording collects requests that a server recorded when they ended, and so not
// in the order of their arrival: rows of this package, or Dynamo's.
type recording struct {
	opts      ReadOptions
	format    string
	maxTokens int
	blockSize int // 0 until a row says it
	records   []record
	skipped   int
	ids       interner
	arena     idArena
	raw       []uint64
	names     map[string]string // of sessions and models, each kept once
	seen      map[string]bool   // request ids, where they must be unique
}

// record is one request on the clock of the recording.
type record struct {
	Request // Arrival since the epoch; Blocks as far as they are known
	// end is when it was answered, on the same clock; negative if not known.
	end time.Duration
}

func newRecording(format string, opts ReadOptions, maxTokens int) *recording {
	return &recording{
		opts:      opts,
		format:    format,
		maxTokens: maxTokens,
		names:     make(map[string]string),
		seen:      make(map[string]bool),
	}
}

func (c *recording) add(_ int, o *openai.Object) error {
	if c.format == "dynamo" {
		return c.addDynamo(o)
	}
	return c.addRow(o)
}

// addRow takes a [Row] in, of which it reads only what makes traffic.
func (c *recording) addRow(o *openai.Object) error {
	if schema, _ := o.Get("schema").Text(); schema != Schema {
		return expected("schema", Schema, o.Get("schema"))
	}
	r := record{end: -1}
	var err error
	if r.Model, err = c.name("model", o.Get("model")); err != nil {
		return err
	}
	if c.opts.Model != "" && r.Model != c.opts.Model {
		return nil
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
	if v := o.Get("output_tokens"); v.Present() {
		if r.Output, err = count("output_tokens", v, 0, c.maxTokens); err != nil {
			return err
		}
	}
	// What we counted belongs to the hashes; what the engine counted beats a guess.
	name, v := "input_tokens", o.Get("input_tokens")
	if o.Get("input_guessed").True() {
		name, v = pick(o, "engine_input_tokens", "input_tokens")
	}
	if r.Input, err = count(name, v, 0, c.maxTokens); err != nil {
		return err
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

// take keeps a record, whose hashes are in raw, if it tells of a request that
// ran.
func (c *recording) take(r record) error {
	if r.Input == 0 || r.Output == 0 {
		c.skipped++
		return nil
	}
	r.Blocks = c.arena.make(len(c.raw))
	if err := c.ids.intern(r.Blocks, c.raw); err != nil {
		return err
	}
	c.records = append(c.records, r)
	return nil
}

// size notes the block size, which is the same for all requests.
func (c *recording) size(member string, v openai.Value) error {
	n, err := count(member, v, 1, maxBlockSize)
	if err != nil {
		return err
	}
	if c.blockSize != 0 && n != c.blockSize {
		return &memberError{member, fmt.Errorf("expected %d as in the rows before, got %d: choose one model of a trace that has several", c.blockSize, n)}
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

// trace puts the requests in order, links those of a session, and numbers the
// blocks.
func (c *recording) trace() (*Trace, error) {
	t := &Trace{BlockSize: cmp.Or(c.blockSize, c.opts.BlockSize), Format: c.format, Skipped: c.skipped}
	if len(c.records) == 0 {
		return t, nil
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
	next := 0
	t.Requests = make([]Request, len(c.records))
	var arena idArena
	for i := range c.records {
		r := c.records[i].Request
		known := r.Blocks
		r.Arrival -= first
		r.Blocks = arena.make(blocksOf(r.Input, t.BlockSize))
		if maxIDs-next < len(r.Blocks) {
			return nil, errTooManyBlocks
		}
		for k := range r.Blocks {
			// A block without a hash is like no other.
			if k >= len(known) {
				r.Blocks[k] = uint32(next)
				next++
				continue
			}
			if fresh[known[k]] == 0 {
				next++
				fresh[known[k]] = uint32(next)
			}
			r.Blocks[k] = fresh[known[k]] - 1
		}
		t.Requests[i] = r
	}
	return t, nil
}

// link finds out which requests of a session followed the one before. One that
// came before that was answered did not wait for it.
func link(records []record) {
	last := make(map[string]int)
	for i := range records {
		r := &records[i]
		if r.Session == "" {
			continue
		}
		if j, ok := last[r.Session]; ok {
			before := &records[j]
			switch {
			case before.end < 0:
				r.Follows, r.Delay = true, r.Arrival-before.Arrival
			case before.end <= r.Arrival:
				r.Follows, r.DelayKnown, r.Delay = true, true, r.Arrival-before.end
			}
		}
		last[r.Session] = i
	}
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

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

// WriteRows writes a trace as rows of completed requests for a model, with
// hashes that mean something only within the trace: those of partial last blocks
// are among them. What a trace does not hold, such as decisions, is absent.
// Arrivals are counted from the epoch, in whole microseconds.
func WriteRows(w io.Writer, t *Trace, model string) error {
	if model == "" {
		return errors.New("model: expected a name")
	}
	out := bufio.NewWriterSize(w, 256<<10)
	sessions := t.chains()
	answered := t.answered()
	var line []byte
	for i := range t.Requests {
		r := &t.Requests[i]
		row := Row{
			RequestID:    cmp.Or(r.ID, strconv.Itoa(i+1)),
			Model:        cmp.Or(r.Model, model),
			Endpoint:     "completions",
			ArrivalUS:    r.Arrival.Microseconds(),
			SessionID:    sessions[i],
			Hints:        r.Hints,
			InputTokens:  r.Input,
			TokenSource:  "none",
			BlockSize:    t.BlockSize,
			BlockHashes:  make(Hashes, len(r.Blocks)),
			OutputTokens: &r.Output,
			TotalTimeMS:  answered[i],
			Outcome:      OutcomeCompleted,
			Status:       200,
		}
		for k, id := range r.Blocks {
			row.BlockHashes[k] = kv.BlockID(mix(uint64(id)))
		}
		var err error
		if line, err = row.AppendJSON(line[:0]); err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// answered returns how long each request took, where the delay of the one after
// it says so.
func (t *Trace) answered() []*nvext.Float {
	took := make([]*nvext.Float, len(t.Requests))
	for i, p := range t.Previous() {
		if r := &t.Requests[i]; p >= 0 && r.DelayKnown {
			// In whole microseconds, as arrivals are, or else it would seem to end
			// after the next one came.
			gap := r.Arrival.Truncate(time.Microsecond) - t.Requests[p].Arrival.Truncate(time.Microsecond)
			took[p] = MS(max(0, gap-r.Delay).Truncate(time.Microsecond))
		}
	}
	return took
}
