package kv

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// AppendJSON appends one event in its JSON form, an object on one line such as
//
//	{"worker_id":7,"event":{"event_id":43,"data":{"removed":{"block_hashes":[100]}},"dp_rank":0}}
//
// with id as event_id. A tier other than the device is told beside worker_id as
// storage_tier; Counted, Bare and a ParentSeq that is known are told in the object
// of what was stored or removed as counted, bare and parent_sequence_hash. It returns
// dst as it was and an error when the source is no worker or the event's kind or tier
// is unknown.
func AppendJSON(dst []byte, src Source, id uint64, ev *Event) ([]byte, error) {
	if err := checkWritable(src, ev); err != nil {
		return dst, err
	}
	dst = append(dst, `{"worker_id":`...)
	dst = strconv.AppendUint(dst, uint64(src.Worker), 10)
	if ev.Tier != Device {
		dst = append(dst, `,"storage_tier":"`...)
		dst = append(dst, ev.Tier.String()...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"event":{"event_id":`...)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, `,"data":`...)
	switch ev.Kind {
	case Stored:
		dst = appendStoredJSON(dst, ev)
	case Removed:
		dst = append(dst, `{"removed":{"block_hashes":[`...)
		for i, b := range ev.Blocks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(b.ID), 10)
		}
		dst = appendFlagsJSON(append(dst, ']'), ev)
	case Cleared:
		dst = append(dst, `"cleared"`...)
	}
	dst = append(dst, `,"dp_rank":`...)
	dst = strconv.AppendUint(dst, uint64(src.Rank), 10)
	return append(dst, `}}`...), nil
}

func appendStoredJSON(dst []byte, ev *Event) []byte {
	dst = append(dst, `{"stored":{"parent_hash":`...)
	if ev.HasParent {
		dst = strconv.AppendUint(dst, uint64(ev.Parent), 10)
	} else {
		dst = append(dst, `null`...)
	}
	if ev.HasParentSeq {
		dst = append(dst, `,"parent_sequence_hash":`...)
		dst = strconv.AppendUint(dst, uint64(ev.ParentSeq), 10)
	}
	dst = append(dst, `,"blocks":[`...)
	for i, b := range ev.Blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"block_hash":`...)
		dst = strconv.AppendUint(dst, uint64(b.ID), 10)
		dst = append(dst, `,"tokens_hash":`...)
		dst = strconv.AppendUint(dst, uint64(b.Tokens), 10)
		dst = append(dst, `,"mm_extra_info":null}`...)
	}
	return appendFlagsJSON(append(dst, ']'), ev)
}

// appendFlagsJSON ends the object of what was stored or removed.
func appendFlagsJSON(dst []byte, ev *Event) []byte {
	if ev.Counted {
		dst = append(dst, `,"counted":true`...)
	}
	if ev.Bare {
		dst = append(dst, `,"bare":true`...)
	}
	return append(dst, `}}`...)
}

func checkWritable(src Source, ev *Event) error {
	switch {
	case src.Worker == 0:
		return errNoWorker
	case ev.Kind < Stored || ev.Kind > Cleared:
		return fmt.Errorf("kv event: kind %d is none of stored, removed, cleared", ev.Kind)
	case ev.Tier >= NumTiers:
		return fmt.Errorf("kv event: tier %d is none of device, host_pinned, disk, external", ev.Tier)
	}
	return nil
}

var (
	errNoWorker = errors.New("kv event: worker_id: expected a worker, 0 is none")
	errNoEvent  = errors.New("event: missing")
	errOneOf    = errors.New("expected exactly one of stored, removed, \"cleared\"")
)

// ParseJSON reads one event in its JSON form as a batch of one, with event_id as
// Seq. Members it does not know are ignored; dp_rank, parent_hash, storage_tier and
// mm_extra_info may be missing. Integers are exact, and hashes may be written as
// signed ones. An unknown storage tier or residency domain is an error, for what it
// says cannot be placed. The batch keeps nothing of raw.
func ParseJSON(raw []byte) (*Batch, error) {
	s := scanner{b: raw}
	b := &Batch{Events: make([]Event, 1)}
	err := s.routerEvent(b)
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("kv event: %w", err)
	}
	if b.Source.Worker == 0 {
		return nil, errNoWorker
	}
	return b, nil
}

func (s *scanner) routerEvent(b *Batch) error {
	event := false
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "worker_id":
			v, err := s.uint(math.MaxUint64)
			b.Source.Worker = WorkerID(v)
			return err
		case "storage_tier":
			name, err := s.str()
			if err != nil {
				return err
			}
			b.Events[0].Tier, err = wireTier(name)
			return err
		case "residency_domain":
			name, err := s.str()
			if err != nil {
				return err
			}
			return checkDomain(name)
		case "event":
			event = true
			return s.cacheEvent(b)
		}
		return s.skip()
	})
	if err == nil && !event {
		err = errNoEvent
	}
	return err
}

func wireTier(name []byte) (Tier, error) {
	t, ok := ParseTier(string(name))
	if !ok {
		return 0, fmt.Errorf("expected device, host_pinned, disk or external, got %.32q", name)
	}
	return t, nil
}

func checkDomain(name []byte) error {
	switch string(name) {
	case "worker", "cache_owner":
		return nil
	}
	return fmt.Errorf("expected worker or cache_owner, got %.32q", name)
}

func (s *scanner) cacheEvent(b *Batch) error {
	id, ev := false, &b.Events[0]
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "event_id":
			v, err := s.uint(math.MaxUint64)
			b.Seq, id = v, true
			return err
		case "dp_rank":
			v, err := s.uint(math.MaxUint32)
			b.Source.Rank = uint32(v)
			return err
		case "data":
			if ev.Kind != 0 {
				return errOneOf
			}
			return s.data(ev)
		}
		return s.skip()
	})
	switch {
	case err != nil:
		return err
	case !id:
		return errors.New("event_id: missing")
	case ev.Kind == 0:
		return errors.New("data: missing")
	}
	return nil
}

func (s *scanner) data(ev *Event) error {
	if s.next() == '"' {
		word, err := s.str()
		if err == nil && string(word) != "cleared" {
			err = fmt.Errorf("expected \"cleared\" or an object, got %.32q", word)
		}
		ev.Kind = Cleared
		return err
	}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "stored":
			if ev.Kind != 0 {
				return errOneOf
			}
			ev.Kind = Stored
			return s.stored(ev)
		case "removed":
			if ev.Kind != 0 {
				return errOneOf
			}
			ev.Kind = Removed
			return s.removed(ev)
		}
		return s.skip()
	})
	if err == nil && ev.Kind == 0 {
		err = errOneOf
	}
	return err
}

func (s *scanner) stored(ev *Event) error {
	blocks := false
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "parent_hash":
			ev.Parent, ev.HasParent, err = s.parent()
			return err
		case "parent_sequence_hash":
			ev.ParentSeq, ev.HasParentSeq, err = s.parent()
			return err
		case "blocks":
			blocks = true
			ev.Blocks = []Block{}
			return s.array(func() error {
				b, err := s.block()
				ev.Blocks = append(ev.Blocks, b)
				return err
			})
		}
		return s.flag(key, ev)
	})
	if err == nil && !blocks {
		err = errors.New("blocks: missing")
	}
	return err
}

// parent reads a hash or null.
func (s *scanner) parent() (id BlockID, ok bool, err error) {
	if s.null() {
		return 0, false, nil
	}
	v, err := s.hash()
	return BlockID(v), true, err
}

func (s *scanner) block() (b Block, err error) {
	start := s.i
	if b, ok := s.ownBlock(); ok {
		return b, nil
	}
	s.i = start
	id, tokens := false, false
	err = s.object(func(key []byte) error {
		switch string(key) {
		case "block_hash":
			v, err := s.hash()
			b.ID, id = BlockID(v), true
			return err
		case "tokens_hash":
			v, err := s.hash()
			b.Tokens, tokens = LocalHash(v), true
			return err
		}
		return s.skip()
	})
	switch {
	case err != nil:
	case !id:
		err = errors.New("block_hash: missing")
	case !tokens:
		err = errors.New("tokens_hash: missing")
	}
	return b, err
}

// ownBlock reads a block that is written as AppendJSON writes it, which takes less
// time than to take an object apart. Otherwise it reports false and leaves the
// scanner anywhere.
func (s *scanner) ownBlock() (b Block, ok bool) {
	if !s.literal(`{"block_hash":`) {
		return b, false
	}
	id, err := s.hash()
	if err != nil || !s.literal(`,"tokens_hash":`) {
		return b, false
	}
	tokens, err := s.hash()
	if err != nil || !s.literal(`,"mm_extra_info":null}`) {
		return b, false
	}
	return Block{BlockID(id), LocalHash(tokens)}, true
}

func (s *scanner) removed(ev *Event) error {
	blocks := false
	err := s.object(func(key []byte) error {
		if string(key) != "block_hashes" {
			return s.flag(key, ev)
		}
		blocks = true
		ev.Blocks = []Block{}
		return s.array(func() error {
			v, err := s.hash()
			ev.Blocks = append(ev.Blocks, Block{ID: BlockID(v)})
			return err
		})
	})
	if err == nil && !blocks {
		err = errors.New("block_hashes: missing")
	}
	return err
}

// flag reads a member that both stored and removed may have, or skips it.
func (s *scanner) flag(key []byte, ev *Event) (err error) {
	switch string(key) {
	case "counted":
		ev.Counted, err = s.boolean()
	case "bare":
		ev.Bare, err = s.boolean()
	default:
		err = s.skip()
	}
	return err
}
