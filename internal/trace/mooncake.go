package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// mooncake collects a trace in Mooncake's format, one request per line:
//
//	{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
type mooncake struct {
	t         Trace
	maxTokens int
	ids       interner
	arena     idArena
	raw       []uint64
	turns     map[string]int // session → its latest request
}

func newMooncake(opts ReadOptions, maxTokens int) *mooncake {
	return &mooncake{
		t:         Trace{BlockSize: cmp.Or(opts.BlockSize, DefaultBlockSize), Format: "mooncake"},
		maxTokens: maxTokens,
		turns:     make(map[string]int),
	}
}

func (m *mooncake) trace() (*Trace, error) { return &m.t, nil }

func (m *mooncake) add(o *openai.Object) error {
	// Rows that wait for others, or that hold only what is new, would be taken for
	// something else than they are.
	for _, key := range []string{"wait_for", "branches", "prefix_reset", "tool_wait_ms"} {
		if o.Get(key).Present() {
			return &memberError{key, errors.New("agentic traces are not supported")}
		}
	}
	for _, key := range []string{"chat_id", "parent_chat_id"} {
		if o.Get(key) != nil {
			return &memberError{key, errors.New("expected none: traces of chats, as Qwen's, count time in seconds and are another format, which is not supported")}
		}
	}
	var r Request
	if err := m.lengths(&r, o); err != nil {
		return err
	}
	if err := m.time(&r, o); err != nil {
		return err
	}
	var err error
	if r.ID, err = text("request_id", o.Get("request_id")); err != nil {
		return err
	}
	if r.Hints, err = mooncakeHints(o); err != nil {
		return err
	}
	if r.Session != "" {
		m.turns[r.Session] = len(m.t.Requests)
	}
	m.t.Requests = append(m.t.Requests, r)
	return nil
}

// lengths reads how long prompt and answer are, and what the prompt is.
func (m *mooncake) lengths(r *Request, o *openai.Object) error {
	name, v := pick(o, "output_length", "output_tokens")
	var err error
	if r.Output, err = count(name, v, 0, m.maxTokens); err != nil {
		return err
	}
	if ids := o.Get("output_token_ids"); ids.Present() {
		n := 0
		if err := ids.Elements(func(openai.Value) bool { n++; return true }); err != nil {
			return expected("output_token_ids", "an array", ids)
		}
		if n != r.Output {
			return &memberError{"output_token_ids", fmt.Errorf("expected %d ids, as %s says, got %d", r.Output, name, n)}
		}
	}
	if m.raw, err = appendUints(m.raw[:0], "hash_ids", o.Get("hash_ids")); err != nil {
		return err
	}
	covered := len(m.raw) * m.t.BlockSize
	if covered == 0 {
		return &memberError{"hash_ids", errors.New("expected at least one id")}
	}
	r.Input = covered
	if name, v := pick(o, "input_length", "input_tokens"); v != nil {
		if r.Input, err = count(name, v, 1, m.maxTokens); err != nil {
			return err
		}
		if most := blocksOf(r.Input, m.t.BlockSize); len(m.raw) > most {
			return &memberError{"hash_ids", blockSizeError(fmt.Sprintf("expected at most %d ids of %d tokens for a prompt of %d, got %d", most, m.t.BlockSize, r.Input, len(m.raw)))}
		}
		if r.Input > covered {
			// Tokens without an id cannot be told apart: there are as many as there
			// are ids for.
			r.Input = covered
			m.t.Clamped++
		}
	} else if covered > m.maxTokens {
		return &memberError{"hash_ids", fmt.Errorf("expected ids for at most %d tokens, got some for %d", m.maxTokens, covered)}
	}
	r.Blocks = m.arena.make(len(m.raw))
	return m.ids.intern(r.Blocks, m.raw, 0)
}

// time reads when the request is sent: at a time, or some time after the answer
// to the request before.
func (m *mooncake) time(r *Request, o *openai.Object) error {
	var err error
	if r.Session, err = text("session_id", o.Get("session_id")); err != nil {
		return err
	}
	stampName, stamp := pick(o, "timestamp", "created_time")
	if stamp != nil {
		if r.Arrival, err = millis(stampName, stamp); err != nil {
			return err
		}
	}
	delayName, delay := pick(o, "delay", "delay_ms")
	if delay != nil {
		if r.Delay, err = millis(delayName, delay); err != nil {
			return err
		}
	}
	before, later := m.turns[r.Session]
	if !later || r.Session == "" {
		if r.Delay != 0 {
			return &memberError{delayName, errors.New("expected none: no request of the session comes before")}
		}
		return nil
	}
	r.Follows, r.DelayKnown = true, delay != nil
	previous := m.t.Requests[before].Arrival
	switch {
	case stamp == nil:
		if r.Arrival = previous + r.Delay; r.Arrival > maxTime {
			return &memberError{delayName, errors.New("expected delays that add up to less than 73 years")}
		}
	case r.DelayKnown:
		r.Arrival = max(r.Arrival, previous)
	case r.Arrival < previous:
		return &memberError{stampName, errors.New("expected a time that is not before that of the session's request before")}
	default:
		r.Delay = r.Arrival - previous
	}
	return nil
}

// mooncakeHints reads the members that are hints.
func mooncakeHints(o *openai.Object) (*Hints, error) {
	var h Hints
	if v := o.Get("priority"); v.Present() {
		n, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil {
			return nil, expected("priority", "a whole number of 32 bits", v)
		}
		p := int32(n)
		h.Priority = &p
	}
	if v := o.Get("strict_priority"); v.Present() {
		n, ok := v.Uint()
		if !ok || n > math.MaxUint32 {
			return nil, expected("strict_priority", "a whole number of 32 bits, not negative", v)
		}
		p := uint32(n)
		h.StrictPriority = &p
	}
	if h == (Hints{}) {
		return nil, nil
	}
	return &h, nil
}

// WriteMooncake writes a trace in Mooncake's format, which has no place for the
// names of models and for hints other than priorities, nor for the block size:
// readers take it for [DefaultBlockSize] unless told otherwise. Blocks are
// numbered in order of appearance, those without an id included. A request that
// would need a line above [MaxLine] is an error.
func WriteMooncake(w io.Writer, t *Trace) error {
	out := bufio.NewWriterSize(w, 256<<10)
	sessions := t.chains()
	blocks := numbering{of: make([]uint32, t.idBound())}
	var line []byte
	for i := range t.Requests {
		r := &t.Requests[i]
		var err error
		if line, err = appendMooncake(line[:0], r, t.unknown(r), &blocks, sessions[i]); err != nil {
			return fmt.Errorf("request %s: %w", t.name(i), err)
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// numbering numbers blocks in order of appearance.
type numbering struct {
	of   []uint32 // one more than the number of each id; 0 if it has none yet
	next uint32
}

func (n *numbering) id(id uint32) uint32 {
	if n.of[id] == 0 {
		n.next++
		n.of[id] = n.next
	}
	return n.of[id] - 1
}

// fresh returns the number of a block without an id.
func (n *numbering) fresh() uint32 {
	n.next++
	return n.next - 1
}

// appendMooncake appends a request as a line, spaced as the published traces are.
func appendMooncake(dst []byte, r *Request, unknown int, blocks *numbering, session string) ([]byte, error) {
	if maxIDs-int(blocks.next) < len(r.Blocks)+unknown {
		return dst, errTooManyBlocks
	}
	dst = append(dst, `{"timestamp": `...)
	dst = appendMillis(dst, r.Arrival)
	dst = append(dst, `, "input_length": `...)
	dst = strconv.AppendInt(dst, int64(r.Input), 10)
	dst = append(dst, `, "output_length": `...)
	dst = strconv.AppendInt(dst, int64(r.Output), 10)
	dst = append(dst, `, "hash_ids": [`...)
	for _, id := range r.Blocks {
		dst = strconv.AppendUint(dst, uint64(blocks.id(id)), 10)
		dst = append(dst, ", "...)
	}
	for range unknown {
		if len(dst) > MaxLine {
			break
		}
		dst = strconv.AppendUint(dst, uint64(blocks.fresh()), 10)
		dst = append(dst, ", "...)
	}
	dst = append(bytes.TrimSuffix(dst, []byte(", ")), ']')
	if session != "" {
		dst = append(dst, `, "session_id": `...)
		dst = openai.AppendString(dst, session)
	}
	if r.Follows && r.DelayKnown {
		dst = append(dst, `, "delay": `...)
		dst = appendMillis(dst, r.Delay)
	}
	if r.ID != "" {
		dst = append(dst, `, "request_id": `...)
		dst = openai.AppendString(dst, r.ID)
	}
	if h := r.Hints; h != nil && h.Priority != nil {
		dst = append(dst, `, "priority": `...)
		dst = strconv.AppendInt(dst, int64(*h.Priority), 10)
	}
	if h := r.Hints; h != nil && h.StrictPriority != nil {
		dst = append(dst, `, "strict_priority": `...)
		dst = strconv.AppendUint(dst, uint64(*h.StrictPriority), 10)
	}
	dst = append(dst, '}', '\n')
	if len(dst) > MaxLine {
		return dst, fmt.Errorf("%d blocks need a line of more than %d MiB: larger blocks are fewer", len(r.Blocks)+unknown, MaxLine>>20)
	}
	return dst, nil
}

// appendMillis appends a time that is not negative in milliseconds, exactly.
func appendMillis(dst []byte, d time.Duration) []byte {
	dst = strconv.AppendInt(dst, int64(d/time.Millisecond), 10)
	rest := int64(d % time.Millisecond)
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := int64(time.Millisecond) / 10; rest > 0; unit /= 10 {
		dst = append(dst, byte('0'+rest/unit))
		rest %= unit
	}
	return dst
}
