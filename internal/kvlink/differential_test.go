package kvlink

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/zmtp"
	"github.com/tinylib/msgp/msgp"
)

// prefix is a prompt as far as some block: the adapter, the salt, and what each block is.
type prefix struct{ adapter, salt, blocks string }

func (p prefix) cut(n int) prefix { return prefix{p.adapter, p.salt, p.blocks[:n]} }

// tokens returns those of one block.
func (p prefix) tokens(block int) []uint32 {
	first := uint32(p.blocks[block])*1000 + uint32(block)*blockSize
	return []uint32{first, first + 1, first + 2, first + 3}
}

// The ways in which engines write events.
const (
	inArrays = iota // vLLM
	inMaps          // vLLM, in whatever order
	inShort         // SGLang, without copies
	dialects
)

// The ways in which an answer of a replay socket goes wrong.
const (
	whole     = iota
	dropping  // some in the middle do not come
	breaking  // it ends early, without its end marker
	repeating // some come twice
	faults
)

// copier is an engine whose cache may hold a block more than once, in one of the
// dialects, with prompts of adapters and salts. It is told nothing of what its events
// become.
type copier struct {
	rng     *rand.Rand
	dialect int
	fault   int
	buffer  int // how many batches it keeps
	life    uint64
	seq     uint64
	clock   float64
	copies  map[prefix]int
	past    []said
	subs    []*pipe
	asked   func() // called when the replay socket is asked, if set
}

func (e *copier) restart() {
	e.hangUp()
	e.life++
	e.seq, e.past, e.copies = 0, nil, map[prefix]int{}
}

func (e *copier) hangUp() {
	for _, p := range e.subs {
		p.Close()
	}
	e.subs = nil
}

// hash is what the engine calls a block, another in each of its lives.
func (e *copier) hash(p prefix) uint64 {
	h := uint64(14695981039346656037) ^ e.life*0x9E3779B97F4A7C15
	for _, c := range []byte(p.adapter + "|" + p.salt + "|" + p.blocks) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func (e *copier) appendHashes(b []byte, ps ...prefix) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(ps)))
	for _, p := range ps {
		b = e.appendHash(b, p)
	}
	return b
}

func (e *copier) appendHash(b []byte, p prefix) []byte {
	switch h := e.hash(p); e.dialect {
	case inArrays: // of the 32 bytes the last 8 count
		return msgp.AppendBytes(b, binary.BigEndian.AppendUint64(make([]byte, 24), h))
	case inShort:
		return msgp.AppendInt64(b, int64(h))
	default:
		return msgp.AppendUint64(b, h)
	}
}

// stored is an event about the blocks of a prefix from one on.
func (e *copier) stored(p prefix, from int) []byte {
	var parts []prefix
	var tokens []uint32
	var extra []byte
	for i := from; i < len(p.blocks); i++ {
		parts, tokens = append(parts, p.cut(i+1)), append(tokens, p.tokens(i)...)
		var keys []string
		if p.adapter != "" {
			keys = append(keys, p.adapter)
		}
		if p.salt != "" && i == 0 {
			keys = append(keys, p.salt)
		}
		if len(keys) == 0 {
			extra = msgp.AppendNil(extra)
			continue
		}
		extra = msgp.AppendArrayHeader(extra, uint32(len(keys)))
		for _, k := range keys {
			extra = msgp.AppendString(extra, k)
		}
	}
	parent, adapter := msgp.AppendNil(nil), msgp.AppendNil(nil)
	if from > 0 {
		parent = e.appendHash(nil, p.cut(from))
	}
	if p.adapter != "" {
		adapter = msgp.AppendString(nil, p.adapter)
	}
	ids := msgp.AppendArrayHeader(nil, uint32(len(tokens)))
	for _, t := range tokens {
		ids = msgp.AppendUint32(ids, t)
	}
	fields := []field{
		{"block_hashes", e.appendHashes(nil, parts...)}, {"parent_block_hash", parent}, {"token_ids", ids},
		{"block_size", []byte{blockSize}}, {"lora_id", msgp.AppendNil(nil)}, {"medium", msgp.AppendString(nil, "GPU")},
	}
	switch {
	case e.dialect != inShort:
		fields = append(fields, field{"lora_name", adapter},
			field{"extra_keys", append(msgp.AppendArrayHeader(nil, uint32(len(parts))), extra...)})
	case p.salt != "":
		namespace := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "cache_salt")
		fields = append(fields, field{"", msgp.AppendString(namespace, p.salt)})
	}
	return e.event("BlockStored", fields...)
}

// field is one of an event, with its value as it is written.
type field struct {
	name  string
	value []byte
}

func (e *copier) event(kind string, fields ...field) []byte {
	if e.dialect != inMaps {
		b := msgp.AppendString(msgp.AppendArrayHeader(nil, uint32(1+len(fields))), kind)
		for _, f := range fields {
			b = append(b, f.value...)
		}
		return b
	}
	e.rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	b := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, uint32(1+len(fields))), "type"), kind)
	for _, f := range fields {
		b = append(msgp.AppendString(b, f.name), f.value...)
	}
	return b
}

func (e *copier) removed(p prefix) []byte {
	return e.event("BlockRemoved", field{"block_hashes", e.appendHashes(nil, p)}, field{"medium", msgp.AppendString(nil, "GPU")})
}

// step does something to the cache and returns what it says of that.
func (e *copier) step() said {
	var events []byte
	n := uint32(0)
	for range 1 + e.rng.IntN(4) {
		if ev := e.change(); ev != nil {
			events = append(events, ev...)
			n++
		}
	}
	e.clock += 0.5
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), e.clock)
	b = append(msgp.AppendArrayHeader(b, n), events...)
	out := said{e.seq, msgp.AppendUint32(b, 0)}
	e.seq++
	e.past = append(e.past, out)
	e.past = e.past[max(0, len(e.past)-e.buffer):]
	return out
}

// change does one thing and returns the event about it, nil for none.
func (e *copier) change() []byte {
	switch n := e.rng.IntN(100); {
	case n < 55:
		return e.store()
	case n < 96:
		return e.evict()
	case n < 97:
		clear(e.copies)
		return e.event("AllBlocksCleared")
	case n < 98:
		return e.event("Mystery")
	case n < 99:
		return e.removed(prefix{blocks: "unknown"})
	default:
		return []byte{0x93, 1, 2, 3}
	}
}

// store adds a prompt, after as much of it as there is; or, where there may be copies,
// after less.
func (e *copier) store() []byte {
	var p prefix
	if e.dialect != inShort && e.rng.IntN(4) == 0 {
		p.adapter = fmt.Sprint("adapter", e.rng.IntN(2))
	}
	if e.rng.IntN(3) == 0 {
		p.salt = fmt.Sprint("salt", e.rng.IntN(2))
	}
	for range 1 + e.rng.IntN(longest) {
		p.blocks += string(rune('a' + e.rng.IntN(2)))
	}
	from := e.hits(p)
	if e.dialect != inShort && from > 0 && e.rng.IntN(4) == 0 {
		from = e.rng.IntN(from)
	}
	end := from
	for end < len(p.blocks) && (e.dialect != inShort || e.copies[p.cut(end+1)] == 0) {
		end++
		e.copies[p.cut(end)]++
	}
	if from == end {
		return nil
	}
	return e.stored(p.cut(end), from)
}

// hits returns how many blocks of a prompt there are.
func (e *copier) hits(p prefix) (n int) {
	for n < len(p.blocks) && e.copies[p.cut(n+1)] > 0 {
		n++
	}
	return n
}

// evict removes a copy of some block, as a rule one that no other follows.
func (e *copier) evict() []byte {
	maps.DeleteFunc(e.copies, func(_ prefix, n int) bool { return n == 0 })
	if len(e.copies) == 0 {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(e.copies), func(a, b prefix) int { return cmp.Compare(e.hash(a), e.hash(b)) })
	p := all[e.rng.IntN(len(all))]
	if e.rng.IntN(3) > 0 {
		for _, q := range all {
			if q.cut(min(len(q.blocks), len(p.blocks))) == p && len(q.blocks) > len(p.blocks) {
				p = q
			}
		}
	}
	e.copies[p]--
	return e.removed(p)
}

func (e *copier) publish(b said) {
	for _, p := range e.subs {
		p.in <- b.message()
	}
}

// answer sends what the replay socket does.
func (e *copier) answer(p *pipe, from uint64) {
	sent := 0
	for _, b := range e.past {
		if b.seq < from {
			continue
		}
		if sent++; e.fault == dropping && sent > 3 && e.rng.IntN(15) == 0 {
			continue
		}
		m := append(zmtp.Message{nil}, b.message()[1:]...)
		p.in <- m
		switch {
		case e.fault == breaking && e.rng.IntN(30) == 0:
			return
		case e.fault == repeating && e.rng.IntN(20) == 0:
			p.in <- m
		}
	}
	p.in <- zmtp.Message{nil, binary.BigEndian.AppendUint64(nil, 1<<64-1), nil}
}

const longest = 6 // blocks of a prompt

// check compares what the index finds of every prompt with what the engine has. exact
// says that it must be all of that.
func (e *copier) check(x *kvindex.Index, exact bool) error {
	for _, adapter := range []string{"", "adapter0", "adapter1"} {
		for _, salt := range []string{"", "salt0", "salt1"} {
			for bits := range 1 << longest {
				p := prefix{adapter: adapter, salt: salt}
				for i := range longest {
					p.blocks += string(rune('a' + bits>>i&1))
				}
				var tokens []uint32
				for i := range longest {
					tokens = append(tokens, p.tokens(i)...)
				}
				found := 0
				for _, o := range x.Match(nil, kv.AppendBlocks(nil, kv.HashSeed(adapter, salt), tokens, blockSize)) {
					found = int(o.Depth[kv.Device])
				}
				if want := e.hits(p); found > want || exact && found < want {
					return fmt.Errorf("%+v: %d blocks are found, the engine has %d", p, found, want)
				}
			}
		}
	}
	return nil
}

// TestDifferential compares the index with engines that misbehave in every way at once.
func TestDifferential(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { differential(t, seed) })
		})
	}
}

func differential(t *testing.T, seed uint64) {
	e := &copier{
		rng: rand.New(rand.NewPCG(seed, 99)), dialect: int(seed % dialects), fault: int(seed / dialects % faults),
		buffer: 1 << 20, clock: 1_700_000_000, copies: map[prefix]int{},
	}
	short := seed%5 == 4 // what it keeps may not be all that is needed
	if short {
		e.buffer = 30
	}
	x := kvindex.New(kvindex.Config{})
	r := &rig{} // for its lock
	l := Open(Config{
		Target: x, Now: time.Now, Seed: seed,
		Dial: func(context.Context, string, ...string) (Conn, error) {
			p := newPipe(nil)
			r.do(func() { e.subs = append(e.subs, p) })
			return p, nil
		},
		DialReplay: func(context.Context, string) (Conn, error) {
			return newPipe(func(p *pipe, frames [][]byte) {
				r.do(func() {
					if e.asked != nil {
						e.asked()
					}
					e.answer(p, binary.BigEndian.Uint64(frames[1]))
				})
			}), nil
		},
	})
	defer l.Close()
	l.Follow(7, of(engine.EventStream{Address: "a:1", Replay: "a:1", Counted: e.dialect != inShort}), nil, false)
	for phase := range 14 {
		var act int
		var pause time.Duration
		r.do(func() {
			act, pause = e.rng.IntN(9), time.Duration(e.rng.IntN(3000))*time.Millisecond
			e.disturb(act)
		})
		time.Sleep(pause)
		r.do(func() {
			e.asked = nil
			e.publish(e.step())
		})
		time.Sleep(2 * time.Minute)
		r.do(func() { e.publish(e.step()) })
		time.Sleep(time.Minute)
		synctest.Wait()
		st := l.Stats()[0]
		var err error
		r.do(func() { err = e.check(x, !short) })
		if err == nil && !short && st.State != Live {
			err = fmt.Errorf("the state is %v", st.State)
		}
		if err != nil {
			t.Fatalf("dialect %d, fault %d, short %v: phase %d after act %d: %v; %+v", e.dialect, e.fault, short, phase, act, err, st.Feed)
		}
	}
}

// disturb does something to the engine and goes on from there.
func (e *copier) disturb(act int) {
	unheard := func(n int) {
		for range e.rng.IntN(n) {
			e.step()
		}
	}
	switch act {
	case 0:
		unheard(30)
	case 1:
		e.hangUp()
	case 2:
		e.restart()
	case 3:
		e.restart()
		unheard(60)
	case 4: // in the middle of a recovery
		e.asked = func() {
			e.asked = nil
			e.restart()
			unheard(20)
		}
		e.hangUp()
	case 5: // it goes on during a recovery
		e.asked = func() {
			if e.rng.IntN(3) == 0 {
				e.publish(e.step())
			}
		}
		e.step()
	}
	for range e.rng.IntN(60) {
		if b := e.step(); e.rng.IntN(12) > 0 || act == 6 {
			e.publish(b)
		}
	}
}
