package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// AppendMsgpack appends one event in its MessagePack form: the objects of
// [AppendJSON] as maps with string keys, integers as short as they can be. It
// returns dst as it was and an error in the same cases.
func AppendMsgpack(dst []byte, src Source, id uint64, ev *Event) ([]byte, error) {
	if err := checkWritable(src, ev); err != nil {
		return dst, err
	}
	n := uint32(2)
	if ev.Tier != Device {
		n++
	}
	dst = msgp.AppendMapHeader(dst, n)
	dst = appendUintField(dst, "worker_id", uint64(src.Worker))
	if ev.Tier != Device {
		dst = msgp.AppendString(dst, "storage_tier")
		dst = msgp.AppendString(dst, ev.Tier.String())
	}
	dst = msgp.AppendString(dst, "event")
	dst = msgp.AppendMapHeader(dst, 3)
	dst = appendUintField(dst, "event_id", id)
	dst = msgp.AppendString(dst, "data")
	switch ev.Kind {
	case Stored:
		dst = appendStoredMsgpack(dst, ev)
	case Removed:
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "removed")
		dst = msgp.AppendMapHeader(dst, 1+flags(ev))
		dst = msgp.AppendString(dst, "block_hashes")
		dst = msgp.AppendArrayHeader(dst, uint32(len(ev.Blocks)))
		for _, b := range ev.Blocks {
			dst = msgp.AppendUint64(dst, uint64(b.ID))
		}
		dst = appendFlagsMsgpack(dst, ev)
	case Cleared:
		dst = msgp.AppendString(dst, "cleared")
	}
	return appendUintField(dst, "dp_rank", uint64(src.Rank)), nil
}

func appendStoredMsgpack(dst []byte, ev *Event) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "stored")
	n := 2 + flags(ev)
	if ev.HasParentSeq {
		n++
	}
	dst = msgp.AppendMapHeader(dst, n)
	if ev.HasParent {
		dst = appendUintField(dst, "parent_hash", uint64(ev.Parent))
	} else {
		dst = msgp.AppendString(dst, "parent_hash")
		dst = msgp.AppendNil(dst)
	}
	if ev.HasParentSeq {
		dst = appendUintField(dst, "parent_sequence_hash", uint64(ev.ParentSeq))
	}
	dst = msgp.AppendString(dst, "blocks")
	dst = msgp.AppendArrayHeader(dst, uint32(len(ev.Blocks)))
	for _, b := range ev.Blocks {
		dst = msgp.AppendMapHeader(dst, 3)
		dst = appendUintField(dst, "block_hash", uint64(b.ID))
		dst = appendUintField(dst, "tokens_hash", uint64(b.Tokens))
		dst = msgp.AppendString(dst, "mm_extra_info")
		dst = msgp.AppendNil(dst)
	}
	return appendFlagsMsgpack(dst, ev)
}

func appendUintField(dst []byte, name string, v uint64) []byte {
	return msgp.AppendUint64(msgp.AppendString(dst, name), v)
}

// flags counts the members that appendFlagsMsgpack writes.
func flags(ev *Event) (n uint32) {
	if ev.Counted {
		n++
	}
	if ev.Bare {
		n++
	}
	return n
}

func appendFlagsMsgpack(dst []byte, ev *Event) []byte {
	if ev.Counted {
		dst = msgp.AppendBool(msgp.AppendString(dst, "counted"), true)
	}
	if ev.Bare {
		dst = msgp.AppendBool(msgp.AppendString(dst, "bare"), true)
	}
	return dst
}

// ParseMsgpack reads one event in its MessagePack form as [ParseJSON] reads the
// JSON form. In place of the maps around and below data it also takes arrays of the
// values that Dynamo has there, in its order, with or without those that may be
// missing: worker_id, storage_tier, residency_domain, event; event_id, data, dp_rank;
// parent_hash, start_position, blocks; block_hash, tokens_hash; block_hashes. What
// only [AppendMsgpack] writes (counted, bare, parent_sequence_hash) has no place in
// them.
func ParseMsgpack(raw []byte) (*Batch, error) {
	b := &Batch{Events: make([]Event, 1)}
	rest, err := readRouterEvent(raw, b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("expected the end, got %d more bytes", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("kv event: %w", err)
	}
	if b.Source.Worker == 0 {
		return nil, errNoWorker
	}
	return b, nil
}

func readRouterEvent(b []byte, batch *Batch) ([]byte, error) {
	event, words := false, 0
	rest, err := readStruct(b, func(i int, t msgp.Type) string {
		switch {
		case i == 0:
			return "worker_id"
		case (t == msgp.StrType || t == msgp.NilType) && !event:
			if words++; words == 1 {
				return "storage_tier"
			}
			return "residency_domain"
		case !event && (t == msgp.MapType || t == msgp.ArrayType):
			return "event"
		}
		return ""
	}, func(name string, b []byte) (rest []byte, err error) {
		var v uint64
		var s []byte
		switch name {
		case "worker_id":
			v, rest, err = readUint(b, math.MaxUint64)
			batch.Source.Worker = WorkerID(v)
		case "storage_tier":
			if s, rest, err = msgp.ReadStringZC(b); err == nil {
				batch.Events[0].Tier, err = wireTier(s)
			}
		case "residency_domain":
			if s, rest, err = msgp.ReadStringZC(b); err == nil {
				err = checkDomain(s)
			}
		case "event":
			event = true
			rest, err = readCacheEvent(b, batch)
		default:
			rest, err = skipValue(b)
		}
		return rest, err
	})
	if err == nil && !event {
		err = errNoEvent
	}
	return rest, err
}

func readCacheEvent(b []byte, batch *Batch) ([]byte, error) {
	id, ev := false, &batch.Events[0]
	rest, err := readStruct(b, eventOrder, func(name string, b []byte) (rest []byte, err error) {
		var v uint64
		switch name {
		case "event_id":
			id = true
			batch.Seq, rest, err = readUint(b, math.MaxUint64)
		case "data":
			if ev.Kind != 0 {
				return b, errOneOf
			}
			rest, err = readData(b, ev)
		case "dp_rank":
			v, rest, err = readUint(b, math.MaxUint32)
			batch.Source.Rank = uint32(v)
		default:
			rest, err = skipValue(b)
		}
		return rest, err
	})
	switch {
	case err != nil:
	case !id:
		err = errors.New("event_id: missing")
	case ev.Kind == 0:
		err = errors.New("data: missing")
	}
	return rest, err
}

func readData(b []byte, ev *Event) ([]byte, error) {
	if msgp.NextType(b) == msgp.StrType {
		word, rest, err := msgp.ReadStringZC(b)
		if err == nil && string(word) != "cleared" {
			err = fmt.Errorf("expected \"cleared\" or a map, got %.32q", word)
		}
		ev.Kind = Cleared
		return rest, err
	}
	if msgp.NextType(b) != msgp.MapType {
		return b, errOneOf
	}
	rest, err := readStruct(b, nil, func(name string, b []byte) ([]byte, error) {
		if (name == "stored" || name == "removed") && ev.Kind != 0 {
			return b, errOneOf
		}
		switch name {
		case "stored":
			ev.Kind = Stored
			return readStored(b, ev)
		case "removed":
			ev.Kind = Removed
			return readRemoved(b, ev)
		}
		return skipValue(b)
	})
	if err == nil && ev.Kind == 0 {
		err = errOneOf
	}
	return rest, err
}

func readStored(b []byte, ev *Event) ([]byte, error) {
	blocks := false
	rest, err := readStruct(b, func(i int, t msgp.Type) string {
		switch {
		case i == 0:
			return "parent_hash"
		case t == msgp.ArrayType && !blocks:
			return "blocks"
		}
		return ""
	}, func(name string, b []byte) (rest []byte, err error) {
		switch name {
		case "parent_hash":
			ev.Parent, ev.HasParent, rest, err = readParent(b)
		case "parent_sequence_hash":
			ev.ParentSeq, ev.HasParentSeq, rest, err = readParent(b)
		case "blocks":
			blocks = true
			ev.Blocks, rest, err = readBlocks(b, 3, readBlock)
		default:
			rest, err = readFlag(name, b, ev)
		}
		return rest, err
	})
	if err == nil && !blocks {
		err = errors.New("blocks: missing")
	}
	return rest, err
}

func readBlock(b []byte) (block Block, rest []byte, err error) {
	id, tokens := false, false
	rest, err = readStruct(b, blockOrder, func(name string, b []byte) (rest []byte, err error) {
		var v uint64
		switch name {
		case "block_hash":
			v, rest, err = readHash(b)
			block.ID, id = BlockID(v), true
		case "tokens_hash":
			v, rest, err = readHash(b)
			block.Tokens, tokens = LocalHash(v), true
		default:
			rest, err = skipValue(b)
		}
		return rest, err
	})
	switch {
	case err != nil:
	case !id:
		err = errors.New("block_hash: missing")
	case !tokens:
		err = errors.New("tokens_hash: missing")
	}
	return block, rest, err
}

func readRemoved(b []byte, ev *Event) ([]byte, error) {
	blocks := false
	rest, err := readStruct(b, removedOrder, func(name string, b []byte) (rest []byte, err error) {
		if name != "block_hashes" {
			return readFlag(name, b, ev)
		}
		blocks = true
		ev.Blocks, rest, err = readBlocks(b, 1, func(b []byte) (Block, []byte, error) {
			v, rest, err := readHash(b)
			return Block{ID: BlockID(v)}, rest, err
		})
		return rest, err
	})
	if err == nil && !blocks {
		err = errors.New("block_hashes: missing")
	}
	return rest, err
}

func readFlag(name string, b []byte, ev *Event) (rest []byte, err error) {
	switch name {
	case "counted":
		ev.Counted, rest, err = msgp.ReadBoolBytes(b)
	case "bare":
		ev.Bare, rest, err = msgp.ReadBoolBytes(b)
	default:
		rest, err = skipValue(b)
	}
	return rest, err
}

// readBlocks reads an array of blocks, each of which takes at least size bytes.
func readBlocks(b []byte, size int, read func([]byte) (Block, []byte, error)) ([]Block, []byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, b, err
	}
	if int64(n)*int64(size) > int64(len(b)) {
		return nil, b, msgp.ErrShortBytes
	}
	blocks := make([]Block, n)
	for i := range blocks {
		if blocks[i], b, err = read(b); err != nil {
			return nil, b, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return blocks, b, nil
}

// readStruct calls member for each member of a map, or of an array whose elements
// are named by position, if that is not nil. member reads the value and returns
// what follows; a name it does not know is a member to skip.
func readStruct(b []byte, position func(i int, t msgp.Type) string, member func(name string, b []byte) ([]byte, error)) ([]byte, error) {
	if msgp.NextType(b) == msgp.ArrayType && position != nil {
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		for i := 0; i < int(n) && err == nil; i++ {
			name := position(i, msgp.NextType(b))
			if b, err = member(name, b); err != nil && name != "" {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		return b, err
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
			return b, err
		}
		name := memberName(key)
		if b, err = member(name, b); err != nil && name != "" {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return b, err
}

var memberNames = []string{
	"block_hash", "tokens_hash", "worker_id", "storage_tier", "residency_domain", "event",
	"event_id", "data", "dp_rank", "stored", "removed", "parent_hash", "parent_sequence_hash",
	"blocks", "block_hashes", "counted", "bare", "mm_objects", "mm_hash",
}

// memberName returns the name of a member that is read, and "" for others.
func memberName(key []byte) string {
	if i := slices.IndexFunc(memberNames, func(n string) bool { return n == string(key) }); i >= 0 {
		return memberNames[i]
	}
	return ""
}

// The members of arrays in their order.
var (
	eventOrder   = inOrder("event_id", "data", "dp_rank")
	blockOrder   = inOrder("block_hash", "tokens_hash")
	removedOrder = inOrder("block_hashes")
)

func inOrder(names ...string) func(int, msgp.Type) string {
	return func(i int, _ msgp.Type) string {
		if i < len(names) {
			return names[i]
		}
		return ""
	}
}

// readUint reads an integer between 0 and most.
func readUint(b []byte, most uint64) (uint64, []byte, error) {
	v, rest, err := msgp.ReadUint64Bytes(b)
	if err == nil && v > most {
		err = fmt.Errorf("expected an integer up to %d, got %d", most, v)
	}
	return v, rest, err
}

var (
	errShortHash = errors.New("expected 8 bytes or more")
	errHashType  = errors.New("expected an integer or bytes")
)

// readHash reads a hash: an integer of 64 bits, signed or not, or bytes, of which
// the last 8 count, as they do where vLLM makes an integer of them.
func readHash(b []byte) (uint64, []byte, error) {
	if len(b) >= 9 && (b[0] == 0xcf || b[0] == 0xd3) {
		return binary.BigEndian.Uint64(b[1:]), b[9:], nil
	}
	switch msgp.NextType(b) {
	case msgp.UintType:
		return msgp.ReadUint64Bytes(b)
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(v), rest, err
	case msgp.BinType:
		v, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return 0, b, err
		}
		if len(v) < 8 {
			return 0, b, errShortHash
		}
		return binary.BigEndian.Uint64(v[len(v)-8:]), rest, nil
	default:
		if len(b) == 0 {
			return 0, b, msgp.ErrShortBytes
		}
		return 0, b, errHashType
	}
}

// readParent reads a hash or nil.
func readParent(b []byte) (id BlockID, ok bool, rest []byte, err error) {
	if msgp.IsNil(b) {
		return 0, false, b[1:], nil
	}
	v, rest, err := readHash(b)
	return BlockID(v), err == nil, rest, err
}

// skipValue returns what follows the next value. However deep that is, it takes no
// memory: all that counts is how many values are still to come.
func skipValue(b []byte) ([]byte, error) {
	for left := uint64(1); left > 0; left-- {
		if len(b) > 0 {
			if b[0] == 0xcd && len(b) > 2 { // 16 bits, as most tokens
				b = b[3:]
				continue
			}
			if n := int(plainSize[b[0]]); n > 0 && n <= len(b) {
				b = b[n:]
				continue
			}
		}
		if left > uint64(len(b)) { // each takes a byte or more
			return b, msgp.ErrShortBytes
		}
		size, inner, err := extent(b)
		if err != nil {
			return b, err
		}
		if size > uint64(len(b)) {
			return b, msgp.ErrShortBytes
		}
		b = b[size:]
		left += inner
	}
	return b, nil
}

// plainSize is how many bytes a value takes, by its first byte, where that says it and
// nothing is in the value: numbers above all, of which batches are made. Else it is 0.
var plainSize = func() (sizes [256]uint8) {
	for c := range sizes {
		if size, inner, err := extent([]byte{byte(c)}); err == nil && inner == 0 {
			sizes[c] = uint8(size)
		}
	}
	return sizes
}()

// extent returns how many bytes the next value takes without those in it, and how many
// those are. There is a byte at least.
func extent(b []byte) (size, inner uint64, err error) {
	c := b[0]
	width := 0 // of a length that follows
	switch {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // small integers, nil, false, true
		return 1, 0, nil
	case c <= 0x8f: // small maps
		return 1, 2 * uint64(c&0x0f), nil
	case c <= 0x9f: // small arrays
		return 1, uint64(c & 0x0f), nil
	case c <= 0xbf: // short strings
		return 1 + uint64(c&0x1f), 0, nil
	case c == 0xc1:
		return 0, 0, msgp.InvalidPrefixError(c)
	case c <= 0xc6: // bytes
		width = 1 << (c - 0xc4)
	case c <= 0xc9: // extensions
		width = 1 << (c - 0xc7)
	case c <= 0xcb: // floats
		return 1 + 4<<(c-0xca), 0, nil
	case c <= 0xcf: // unsigned integers
		return 1 + 1<<(c-0xcc), 0, nil
	case c <= 0xd3: // integers
		return 1 + 1<<(c-0xd0), 0, nil
	case c <= 0xd8: // extensions of a fixed length
		return 2 + 1<<(c-0xd4), 0, nil
	case c <= 0xdb: // strings
		width = 1 << (c - 0xd9)
	case c <= 0xdd: // arrays
		width = 2 << (c - 0xdc)
	default: // maps
		width = 2 << (c - 0xde)
	}
	if len(b) <= width {
		return 0, 0, msgp.ErrShortBytes
	}
	var n uint64
	for _, d := range b[1 : 1+width] {
		n = n<<8 | uint64(d)
	}
	size = 1 + uint64(width)
	switch {
	case c >= 0xde:
		return size, 2 * n, nil
	case c >= 0xdc:
		return size, n, nil
	case c >= 0xc7 && c <= 0xc9:
		return size + 1 + n, 0, nil // with its type
	}
	return size + n, 0, nil
}
