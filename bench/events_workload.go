package main

import (
	"math/rand/v2"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
)

// The engine whose events are measured. In each pass it computes the prompt of a new
// request, completes a block of each request under way, of which as many end as begin,
// and gives up the blocks of the request that ended longest ago.
const (
	eventBlock   = 16 // tokens
	eventPrompt  = 48 // blocks
	eventAnswer  = 16 // blocks, one a pass
	eventRequest = eventPrompt + eventAnswer
)

// eventScale says how much is cached of requests that have ended, and how many
// different requests there are. Those have to be more than the cache has room for.
type eventScale struct {
	ended    int // requests
	requests int
}

// eventScaleFull is an engine of 17,400 blocks.
var eventScaleFull = eventScale{ended: 256, requests: 1024}

// fill is how many passes it takes until blocks have to go.
func (s eventScale) fill() int { return s.ended + eventAnswer + 1 }

// eventWorkload is what an engine publishes, in payloads of a batch each: first those
// that fill its cache, then those of a lap, which leave it as they found it, apart from
// the numbers of batches. Exported for gob.
type eventWorkload struct {
	Fill, Lap [][]byte
}

// blocks is how many blocks a lap stores. It removes as many.
func (w *eventWorkload) blocks() int { return len(w.Lap) * eventRequest }

func (w *eventWorkload) bytes() int {
	n := 0
	for _, p := range w.Lap {
		n += len(p)
	}
	return n
}

// eventSource is the engine, to the index.
var eventSource = kv.Source{Worker: 1}

// eventPrompts returns the requests: the blocks of prompt and answer of each, named as the
// index names them, and the tokens.
func eventPrompts(s eventScale) (blocks [][]kv.Block, tokens [][]uint32) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range s.requests {
		t := randomTokens(nil, rng, eventRequest*eventBlock)
		tokens = append(tokens, t)
		blocks = append(blocks, kv.AppendBlocks(nil, kv.HashSeed("", ""), t, eventBlock))
	}
	return blocks, tokens
}

// newEventWorkload makes what is published.
func newEventWorkload(s eventScale) *eventWorkload {
	e := eventEngine{scale: s}
	e.blocks, e.tokens = eventPrompts(s)
	w := new(eventWorkload)
	for pass := range s.fill() + s.requests {
		p := e.pass(pass)
		if pass < s.fill() {
			w.Fill = append(w.Fill, p)
		} else {
			w.Lap = append(w.Lap, p)
		}
	}
	return w
}

// eventEngine writes events as vLLM does since 0.24, in maps.
type eventEngine struct {
	scale  eventScale
	blocks [][]kv.Block
	tokens [][]uint32
	events []byte // of a pass
	n      int
}

// pass returns the payload of a pass. Requests are numbered by the pass in which they
// begin.
func (e *eventEngine) pass(i int) []byte {
	e.events, e.n = e.events[:0], 0
	e.stored(i, 0, eventPrompt)
	for age := 1; age <= min(eventAnswer, i); age++ {
		e.stored(i-age, eventPrompt+age-1, eventPrompt+age)
	}
	if gone := i - e.scale.fill(); gone >= 0 {
		for k := eventRequest - 1; k >= 0; k-- {
			e.removed(gone, k)
		}
	}
	const began = 1_750_000_000
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, began+float64(i)/32)
	b = msgp.AppendArrayHeader(b, uint32(e.n))
	b = append(b, e.events...)
	return msgp.AppendUint32(b, eventSource.Rank)
}

// request returns the number of a request among those that there are.
func (e *eventEngine) request(i int) int { return i % e.scale.requests }

// name returns the engine's own name of a block.
func (e *eventEngine) name(i, block int) uint64 {
	return uint64(engineName(eventSource, e.blocks[e.request(i)][block].ID))
}

// stored adds an event about the blocks of a request from one up to another.
func (e *eventEngine) stored(i, from, to int) {
	e.n++
	b := msgp.AppendMapHeader(e.events, 11)
	b = appendMember(b, "type", "BlockStored")
	b = msgp.AppendString(b, "block_hashes")
	b = msgp.AppendArrayHeader(b, uint32(to-from))
	for k := from; k < to; k++ {
		b = msgp.AppendUint64(b, e.name(i, k))
	}
	b = msgp.AppendString(b, "parent_block_hash")
	if from == 0 {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendUint64(b, e.name(i, from-1))
	}
	b = msgp.AppendString(b, "token_ids")
	tokens := e.tokens[e.request(i)][from*eventBlock : to*eventBlock]
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, t := range tokens {
		b = msgp.AppendUint32(b, t)
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), eventBlock)
	b = msgp.AppendNil(msgp.AppendString(b, "lora_id"))
	b = appendMember(b, "medium", "GPU")
	b = msgp.AppendNil(msgp.AppendString(b, "lora_name"))
	b = msgp.AppendString(b, "extra_keys")
	b = msgp.AppendArrayHeader(b, uint32(to-from))
	for range to - from {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	e.events = appendMember(b, "kv_cache_spec_kind", "full_attention")
}

// removed adds an event about a block of a request, of which there is one each.
func (e *eventEngine) removed(i, block int) {
	e.n++
	b := msgp.AppendMapHeader(e.events, 4)
	b = appendMember(b, "type", "BlockRemoved")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1)
	b = msgp.AppendUint64(b, e.name(i, block))
	b = appendMember(b, "medium", "GPU")
	e.events = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
}

func appendMember(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}
