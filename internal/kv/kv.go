// Package kv models what engines say about their KV caches: which blocks a rank
// stored, removed or cleared.
//
// Every source of such news (the simulator, an engine's event socket, polling, a
// peer) produces the same value, a [Batch], and hands it to one [Applier]. The
// package holds values and their JSON form only; it imports no network package
// and never reads the clock.
package kv

import (
	"encoding/json"
	"fmt"
)

// WorkerID names an engine server. Zero is never a worker. Ids given to workers
// by URL stay below 2^53 so that JavaScript reads them unharmed; ids taken from
// the wire may be any uint64 and must never pass through a float.
type WorkerID uint64

// LocalHash identifies the tokens of one block without regard to what precedes
// it.
type LocalHash uint64

// BlockID is an engine's own name for a block. It is opaque: two engines need
// not agree on it.
type BlockID uint64

// Source is the origin of a batch, the unit that owns blocks and counts its
// messages: one data-parallel rank of one worker.
type Source struct {
	Worker WorkerID
	Rank   uint32
}

// Batch is what one source says at once. Within an epoch Seq grows by one per
// batch; a gap means loss, and a new epoch means that the source restarted with
// an empty cache. The receiver owns the batch.
type Batch struct {
	Source Source
	Epoch  uint64
	Seq    uint64
	Events []Event
}

// Applier takes batches in. Apply returns an error only when the batch as a
// whole could not be taken; a bad event inside is skipped and counted by the
// receiver. Implementations are safe for concurrent use by different sources;
// batches of one source come one after another.
type Applier interface {
	Apply(*Batch) error
}

// Kind says what an event does.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota + 1 // blocks were added after Parent
	Removed                 // blocks were evicted
	Cleared                 // the rank's cache is empty
)

// Event is one change of a rank's cache.
type Event struct {
	Kind Kind
	// Parent is the block that the first of Blocks follows; HasParent is false
	// for the first block of a prompt. Stored only.
	Parent    BlockID
	HasParent bool
	// Blocks are the blocks stored, in prompt order, or the blocks removed, of
	// which only the ID is set.
	Blocks []Block
}

// Block is one block of an event.
type Block struct {
	ID     BlockID
	Tokens LocalHash // of Stored only
}

// The JSON form of an event, one object per message:
//
//	{"worker_id":7,"event":{"event_id":42,"data":{"stored":{…}},"dp_rank":0}}
type wireEvent struct {
	WorkerID WorkerID  `json:"worker_id"`
	Event    wireInner `json:"event"`
}

type wireInner struct {
	EventID uint64          `json:"event_id"`
	Data    json.RawMessage `json:"data"`
	DPRank  uint32          `json:"dp_rank"`
}

type wireStored struct {
	Parent *BlockID    `json:"parent_hash"`
	Blocks []wireBlock `json:"blocks"`
}

type wireBlock struct {
	ID     BlockID         `json:"block_hash"`
	Tokens LocalHash       `json:"tokens_hash"`
	MM     json.RawMessage `json:"mm_extra_info"`
}

type wireRemoved struct {
	Blocks []BlockID `json:"block_hashes"`
}

// MarshalEvent writes event i of b in the JSON form, with Seq as its event id.
func (b *Batch) MarshalEvent(i int) ([]byte, error) {
	ev := &b.Events[i]
	var data any
	switch ev.Kind {
	case Stored:
		st := wireStored{Blocks: make([]wireBlock, len(ev.Blocks))}
		if ev.HasParent {
			st.Parent = &ev.Parent
		}
		for k, bl := range ev.Blocks {
			st.Blocks[k] = wireBlock{ID: bl.ID, Tokens: bl.Tokens, MM: json.RawMessage("null")}
		}
		data = map[string]wireStored{"stored": st}
	case Removed:
		rm := wireRemoved{Blocks: make([]BlockID, len(ev.Blocks))}
		for k, bl := range ev.Blocks {
			rm.Blocks[k] = bl.ID
		}
		data = map[string]wireRemoved{"removed": rm}
	case Cleared:
		data = "cleared"
	default:
		return nil, fmt.Errorf("event %d: kind %d is none of stored, removed, cleared", i, ev.Kind)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", i, err)
	}
	return json.Marshal(wireEvent{
		WorkerID: b.Source.Worker,
		Event:    wireInner{EventID: b.Seq, Data: raw, DPRank: b.Source.Rank},
	})
}

// UnmarshalEvent reads one event in the JSON form as a batch of one.
func UnmarshalEvent(raw []byte) (*Batch, error) {
	var w wireEvent
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf("kv event: %w", err)
	}
	if w.WorkerID == 0 {
		return nil, fmt.Errorf("kv event: worker_id: expected a worker, 0 is none")
	}
	ev, err := unmarshalData(w.Event.Data)
	if err != nil {
		return nil, fmt.Errorf("kv event %d: %w", w.Event.EventID, err)
	}
	return &Batch{
		Source: Source{Worker: w.WorkerID, Rank: w.Event.DPRank},
		Seq:    w.Event.EventID,
		Events: []Event{ev},
	}, nil
}

func unmarshalData(raw json.RawMessage) (Event, error) {
	var word string
	if json.Unmarshal(raw, &word) == nil {
		if word != "cleared" {
			return Event{}, fmt.Errorf("data: expected \"cleared\" or an object, got %q", word)
		}
		return Event{Kind: Cleared}, nil
	}
	var data struct {
		Stored  *wireStored  `json:"stored"`
		Removed *wireRemoved `json:"removed"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return Event{}, fmt.Errorf("data: %w", err)
	}
	switch {
	case data.Stored != nil && data.Removed == nil:
		ev := Event{Kind: Stored, Blocks: make([]Block, len(data.Stored.Blocks))}
		if p := data.Stored.Parent; p != nil {
			ev.Parent, ev.HasParent = *p, true
		}
		for i, b := range data.Stored.Blocks {
			ev.Blocks[i] = Block{ID: b.ID, Tokens: b.Tokens}
		}
		return ev, nil
	case data.Removed != nil && data.Stored == nil:
		ev := Event{Kind: Removed, Blocks: make([]Block, len(data.Removed.Blocks))}
		for i, id := range data.Removed.Blocks {
			ev.Blocks[i].ID = id
		}
		return ev, nil
	default:
		return Event{}, fmt.Errorf("data: expected exactly one of stored, removed, \"cleared\"")
	}
}
