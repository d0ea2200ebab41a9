package trtllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/kv"
)

// pollPause is how long a poller rests when the server answers at once that there is
// nothing, as one does that was started without events.
const pollPause = 200 * time.Millisecond

// maxEvents bounds one answer, in bytes.
const maxEvents = 256 << 20

// PollEvents implements [engine.EventPoller]. There is a batch for each event, with the
// engine's number, and one without content for an event that says nothing about what
// is cached. Batches that were read before an error are returned with it; the events
// after them are lost, which shows as a gap. Calls wait for each other.
func (e *Engine) PollEvents(ctx context.Context) ([]*kv.Batch, error) {
	e.poll.Lock()
	defer e.poll.Unlock()
	start := time.Now()
	status, body, err := e.PostStream(ctx, "/kv_cache_events", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if status != http.StatusOK {
		return nil, fmt.Errorf("events of %s: /kv_cache_events answered status %d", e.URL(), status)
	}
	batches, err := e.events.read(http.MaxBytesReader(nil, body, maxEvents))
	if err != nil {
		err = fmt.Errorf("events of %s: /kv_cache_events: %w", e.URL(), err)
	}
	e.note(e.events.told)
	if len(batches) == 0 && err == nil {
		rest := time.NewTimer(pollPause - time.Since(start))
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return batches, err
}

// BlockSize implements [engine.EventPoller].
func (e *Engine) BlockSize() int { return e.seen.Load().blockSize }

// decoder makes batches of what a server tells. Not safe for concurrent use.
type decoder struct {
	told  seen
	ranks map[uint32]*rank
}

// rank is what is remembered of one rank.
type rank struct {
	next   uint64             // the number of the event to come
	size   int                // tokens in a block, as far as blocks have told
	window openaihttp.Int     // of the attention that holds whole prompts, 0 if not told
	hidden map[uint64]bool    // blocks that are there and not told of
	moved  map[uint64]kv.Tier // blocks that are not on the device
}

func newDecoder() *decoder { return &decoder{ranks: make(map[uint32]*rank)} }

// maxRemembered bounds what is remembered of a rank, in blocks.
const maxRemembered = 1 << 20

func newRank() *rank {
	return &rank{hidden: make(map[uint64]bool), moved: make(map[uint64]kv.Tier)}
}

// event is one entry of the answer.
type event struct {
	ID     *json.Number   `json:"event_id"`
	Rank   openaihttp.Int `json:"attention_dp_rank"`
	Window openaihttp.Int `json:"window_size"` // 0 if not told
	Data   struct {
		Type   string           `json:"type"`
		Levels []openaihttp.Int `json:"num_blocks_per_cache_level"`
		Parent *hash            `json:"parent_hash"`
		LoRA   string           `json:"lora_name"`
		Blocks []block          `json:"blocks"`
		Hashes []hash           `json:"block_hashes"`
		Hash   *hash            `json:"block_hash"`
		Level  *struct {
			New openaihttp.Int `json:"new_value"`
			Old openaihttp.Int `json:"old_value"`
		} `json:"cache_level"`
	} `json:"data"`
}

// block is one that was stored.
type block struct {
	Hash   hash `json:"block_hash"`
	Tokens []struct {
		ID    uint32         `json:"token_id"`
		Extra openaihttp.Int `json:"token_extra_id"`
	} `json:"tokens"`
	Level   openaihttp.Int `json:"cache_level"`
	Salt    string         `json:"cache_salt"`
	Objects []struct {
		Hash string `json:"hash"`
	} `json:"mm_keys"`
}

// hash is the engine's name for a block: 64 bits, with or without a sign.
type hash uint64

// UnmarshalJSON implements [json.Unmarshaler].
func (h *hash) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*h = hash(n)
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("block hash: expected 64 bits, got %.32q", b)
	}
	*h = hash(n)
	return nil
}

// read makes batches of an answer, in its order. Entries that cannot be read are
// skipped.
func (d *decoder) read(r io.Reader) ([]*kv.Batch, error) {
	dec := json.NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.Join(errors.New("expected a list"), err)
	}
	var batches []*kv.Batch
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return batches, err
		}
		var ev event
		if json.Unmarshal(raw, &ev) != nil || ev.ID == nil {
			continue
		}
		id, err := strconv.ParseUint(ev.ID.String(), 10, 64)
		if err != nil || ev.Rank < 0 || ev.Rank >= maxRank {
			continue
		}
		batches = append(batches, d.batch(uint32(ev.Rank), id, &ev))
	}
	if _, err := dec.Token(); err != nil {
		return batches, err
	}
	return batches, nil
}

// batch makes one of an event.
func (d *decoder) batch(n uint32, id uint64, ev *event) *kv.Batch {
	r := d.ranks[n]
	if r == nil || id < r.next {
		r = newRank() // the engine was started anew
		d.ranks[n] = r
	}
	r.next = id + 1
	d.told.ranks = max(d.told.ranks, int(n)+1)
	b := &kv.Batch{Source: kv.Source{Rank: n}, Seq: id}
	if ev.Data.Type == "created" {
		r.window = max(r.window, ev.Window)
		if len(ev.Data.Levels) > 0 && ev.Window >= r.window {
			d.told.blocks = openaihttp.Count(float64(ev.Data.Levels[0]))
		}
		return b
	}
	if ev.Window > 0 && ev.Window < r.window {
		return b // of layers that hold the end of a prompt only
	}
	if ev.Window > r.window {
		if r.window > 0 {
			r.forget(b)
		}
		r.window = ev.Window
	}
	switch ev.Data.Type {
	case "stored":
		d.stored(r, b, ev)
	case "removed":
		r.removed(b, ev.Data.Hashes)
	case "updated":
		if l := ev.Data.Level; l != nil && ev.Data.Hash != nil {
			r.move(b, uint64(*ev.Data.Hash), tierOf(l.Old), tierOf(l.New))
		}
	}
	if len(r.hidden)+len(r.moved) > maxRemembered {
		r.forget(b)
	}
	return b
}

// forget has all that was told of a rank taken back.
func (r *rank) forget(b *kv.Batch) {
	clear(r.hidden)
	clear(r.moved)
	b.Events = append(b.Events[:0], kv.Event{Kind: kv.Cleared})
}

func tierOf(level openaihttp.Int) kv.Tier {
	if level == 0 {
		return kv.Device
	}
	return kv.Host
}

// stored tells of the full blocks of an event up to the first that is not: it ends a
// prompt, or what it is made of is not known.
func (d *decoder) stored(r *rank, b *kv.Batch, ev *event) {
	blocks := ev.Data.Blocks
	if size := sizeOf(blocks, r.size); size > r.size {
		if r.size > 0 {
			r.forget(b) // what was taken for full blocks was not
		}
		r.size, d.told.blockSize = size, size
	}
	var run []kv.Block
	var tokens []uint32
	parent, hasParent := hash(0), false
	if p := ev.Data.Parent; p != nil {
		if r.hidden[uint64(*p)] {
			r.hide(blocks)
			return
		}
		parent, hasParent = *p, true
	}
	flush := func(tier kv.Tier, last hash) {
		if len(run) > 0 {
			b.Events = append(b.Events, kv.Event{
				Kind: kv.Stored, Tier: tier, Parent: kv.BlockID(parent), HasParent: hasParent, Blocks: run,
			})
			parent, hasParent, run = last, true, nil
		}
	}
	for i, bl := range blocks {
		tokens = tokens[:0]
		extra := false
		for _, t := range bl.Tokens {
			tokens = append(tokens, t.ID)
			extra = extra || t.Extra != 0
		}
		if len(tokens) != r.size || extra && len(bl.Objects) == 0 {
			if i > 0 {
				flush(tierOf(blocks[i-1].Level), blocks[i-1].Hash)
			}
			r.hide(blocks[i:])
			return
		}
		if i > 0 && tierOf(bl.Level) != tierOf(blocks[i-1].Level) {
			flush(tierOf(blocks[i-1].Level), blocks[i-1].Hash)
		}
		objects := make([]kv.MMObject, 0, len(bl.Objects))
		for _, o := range bl.Objects {
			objects = append(objects, kv.MMObject{Hash: kv.IdentifierHash(o.Hash)})
		}
		id := uint64(bl.Hash)
		delete(r.hidden, id)
		delete(r.moved, id)
		if tier := tierOf(bl.Level); tier != kv.Device {
			r.moved[id] = tier
		}
		run = append(run, kv.Block{ID: kv.BlockID(id), Tokens: kv.HashTokensMM(kv.HashSeed(ev.Data.LoRA, bl.Salt), tokens, objects)})
	}
	if n := len(blocks); n > 0 {
		flush(tierOf(blocks[n-1].Level), blocks[n-1].Hash)
	}
}

// sizeOf returns the block size that an event shows: that of a block which another
// follows, or of a single one if it is larger than what is known, or the first and a
// power of two, as block sizes are.
func sizeOf(blocks []block, known int) int {
	if len(blocks) == 0 {
		return 0
	}
	n := len(blocks[0].Tokens)
	if len(blocks) > 1 || known > 0 || bits.OnesCount(uint(n)) == 1 {
		return n
	}
	return 0
}

// hide notes blocks that are not told of.
func (r *rank) hide(blocks []block) {
	for _, b := range blocks {
		r.hidden[uint64(b.Hash)] = true
	}
}

// removed tells that blocks are gone from where they were.
func (r *rank) removed(b *kv.Batch, hashes []hash) {
	var gone [kv.NumTiers][]kv.Block
	for _, h := range hashes {
		id := uint64(h)
		if r.hidden[id] {
			delete(r.hidden, id)
			continue
		}
		tier := r.moved[id] // the device if it was not
		delete(r.moved, id)
		gone[tier] = append(gone[tier], kv.Block{ID: kv.BlockID(id)})
	}
	for tier, blocks := range gone {
		if len(blocks) > 0 {
			b.Events = append(b.Events, kv.Event{Kind: kv.Removed, Tier: kv.Tier(tier), Blocks: blocks})
		}
	}
}

// move tells that a block went from one tier to another.
func (r *rank) move(b *kv.Batch, id uint64, from, to kv.Tier) {
	if from == to || r.hidden[id] {
		return
	}
	delete(r.moved, id)
	if to != kv.Device {
		r.moved[id] = to
	}
	one := []kv.Block{{ID: kv.BlockID(id)}}
	b.Events = append(b.Events,
		kv.Event{Kind: kv.Stored, Tier: to, Bare: true, Blocks: one},
		kv.Event{Kind: kv.Removed, Tier: from, Blocks: one})
}
