package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// The most that one event of an engine may hold.
const (
	maxHashes = 65536
	maxTokens = 1 << 20
)

var errTooLarge = errors.New("more than an engine sends")

// member is a member of an engine's event.
type member uint8

const (
	mOther member = iota
	mType
	mHashes
	mParent
	mTokens
	mBlockSize
	mLoraID
	mMedium
	mLoraName
	mExtraKeys
	mGroup
	mKind
	mLocality
	mSalt
	mMetadata
	mMMInfos
	mCopies
)

// The members of events that are arrays. Each release of an engine appended some.
var (
	storedArray = []member{mType, mHashes, mParent, mTokens, mBlockSize, mLoraID, mMedium, mLoraName, mExtraKeys, mGroup, mKind}
	removeArray = []member{mType, mHashes, mMedium, mGroup}
)

func memberOf(key []byte) member {
	switch string(key) {
	case "type":
		return mType
	case "block_hashes":
		return mHashes
	case "parent_block_hash":
		return mParent
	case "token_ids":
		return mTokens
	case "block_size":
		return mBlockSize
	case "lora_id":
		return mLoraID
	case "medium":
		return mMedium
	case "lora_name":
		return mLoraName
	case "extra_keys":
		return mExtraKeys
	case "group_idx":
		return mGroup
	case "kv_cache_spec_kind":
		return mKind
	case "locality":
		return mLocality
	case "cache_salt":
		return mSalt
	case "metadata":
		return mMetadata
	case "block_mm_infos":
		return mMMInfos
	case "remaining_copy_counts":
		return mCopies
	}
	return mOther
}

// wireEvent is an event as an engine wrote it. Byte slices are parts of the
// payload; the others are kept from event to event.
type wireEvent struct {
	kind      Kind   // 0 is a type that is not known
	has       uint32 // which members were there and not nil, a bit for each
	hashes    []BlockID
	parent    BlockID
	tokens    []uint32
	pairs     bool // tokens came in pairs of neighbours
	blockSize uint64
	loraID    int64
	group     uint64
	lora      []byte
	medium    []byte
	attention []byte // the kind of cache
	locality  []byte
	salt      []byte
	extraKeys []byte // undecoded
	mmInfos   []byte // undecoded
	copies    []byte // undecoded
}

func (ev *wireEvent) with(m member) bool { return ev.has&(1<<m) != 0 }

// read reads an event, an array or a map, and returns what follows. On an error the
// event is of no use, and what follows is not known.
func (ev *wireEvent) read(b []byte) ([]byte, error) {
	*ev = wireEvent{hashes: ev.hashes[:0], tokens: ev.tokens[:0]}
	if msgp.NextType(b) == msgp.MapType {
		return ev.readMap(b)
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if n == 0 {
		return b, errors.New("type: missing")
	}
	if b, err = ev.readMember(mType, b); err != nil {
		return b, fmt.Errorf("type: %w", err)
	}
	var order []member
	switch ev.kind {
	case Stored:
		order = storedArray
	case Removed:
		order = removeArray
	}
	for i := 1; i < int(n); i++ {
		m := mOther
		if i < len(order) {
			m = sniff(order[i], msgp.NextType(b))
		}
		if b, err = ev.readMember(m, b); err != nil {
			return b, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return b, nil
}

// sniff tells apart what several engines write at the same place of an array.
func sniff(m member, t msgp.Type) member {
	switch {
	case m == mLoraName && t == msgp.MapType:
		return mMetadata
	case m == mGroup && t == msgp.ArrayType:
		return mMMInfos
	}
	return m
}

func (ev *wireEvent) readMap(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
			return b, err
		}
		if b, err = ev.readMember(memberOf(key), b); err != nil {
			err = fmt.Errorf("%.32s: %w", key, err)
		}
	}
	return b, err
}

func (ev *wireEvent) readMember(m member, b []byte) (rest []byte, err error) {
	if m == mOther {
		return msgp.Skip(b)
	}
	if msgp.IsNil(b) {
		ev.has &^= 1 << m
		if m == mTokens { // as good as none
			ev.has |= 1 << m
			ev.tokens = ev.tokens[:0]
		}
		return b[1:], nil
	}
	ev.has |= 1 << m
	switch m {
	case mType:
		ev.kind, rest, err = readKind(b)
	case mHashes:
		ev.hashes, rest, err = readHashes(ev.hashes[:0], b)
	case mParent:
		var v uint64
		v, rest, err = readHash(b)
		ev.parent = BlockID(v)
	case mTokens:
		ev.tokens, ev.pairs, rest, err = readTokens(ev.tokens[:0], b)
	case mBlockSize:
		ev.blockSize, rest, err = msgp.ReadUint64Bytes(b)
	case mLoraID:
		ev.loraID, rest, err = msgp.ReadInt64Bytes(b)
	case mLoraName:
		ev.lora, rest, err = msgp.ReadStringZC(b)
	case mMedium:
		ev.medium, rest, err = msgp.ReadStringZC(b)
	case mGroup:
		ev.group, rest, err = msgp.ReadUint64Bytes(b)
	case mKind:
		ev.attention, rest, err = msgp.ReadStringZC(b)
	case mLocality:
		ev.locality, rest, err = msgp.ReadStringZC(b)
	case mSalt:
		ev.salt, rest, err = msgp.ReadStringZC(b)
	case mMetadata:
		rest, err = ev.readMetadata(b)
	case mExtraKeys:
		ev.extraKeys, rest, err = readRaw(b)
	case mMMInfos:
		ev.mmInfos, rest, err = readRaw(b)
	case mCopies:
		ev.copies, rest, err = readRaw(b)
	}
	return rest, err
}

// readMetadata reads the map that SGLang adds for requests with a cache salt.
func (ev *wireEvent) readMetadata(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
			break
		}
		m := mOther
		if string(key) == "cache_salt" {
			m = mSalt
		}
		b, err = ev.readMember(m, b)
	}
	return b, err
}

func readKind(b []byte) (Kind, []byte, error) {
	tag, b, err := msgp.ReadStringZC(b)
	switch string(tag) {
	case "BlockStored":
		return Stored, b, err
	case "BlockRemoved":
		return Removed, b, err
	case "AllBlocksCleared":
		return Cleared, b, err
	}
	return 0, b, err
}

func readRaw(b []byte) (raw, rest []byte, err error) {
	rest, err = msgp.Skip(b)
	return b[:len(b)-len(rest)], rest, err
}

// readLength reads the header of an array whose elements take a byte or more each.
func readLength(b []byte, most int) (int, []byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	switch {
	case err != nil:
		return 0, b, err
	case int64(n) > int64(most):
		return 0, b, errTooLarge
	case int64(n) > int64(len(b)):
		return 0, b, msgp.ErrShortBytes
	}
	return int(n), b, nil
}

func readHashes(dst []BlockID, b []byte) ([]BlockID, []byte, error) {
	n, b, err := readLength(b, maxHashes)
	if err != nil {
		return dst, b, err
	}
	dst = slices.Grow(dst, n)
	for range n {
		var v uint64
		if v, b, err = readHash(b); err != nil {
			return dst, b, err
		}
		dst = append(dst, BlockID(v))
	}
	return dst, b, nil
}

// readTokens reads tokens, or pairs of them as SGLang sends them where blocks
// overlap: each pair begins with the second of the one before.
func readTokens(dst []uint32, b []byte) (tokens []uint32, pairs bool, rest []byte, err error) {
	n, b, err := readLength(b, maxTokens)
	if err != nil || n == 0 {
		return dst, false, b, err
	}
	if msgp.NextType(b) == msgp.ArrayType {
		dst, b, err = readPairs(slices.Grow(dst, n+1), n, b)
		return dst, true, b, err
	}
	dst = slices.Grow(dst, n)
	for len(dst) < n {
		var t uint32
		if dst, b = readShort(dst, n, b); len(dst) == n {
			break
		}
		if t, b, err = readToken(b); err != nil {
			return dst, false, b, err
		}
		dst = append(dst, t)
	}
	return dst, false, b, nil
}

// readShort reads tokens until there are n, as long as they are written in 1, 3 or 5
// bytes and 5 are left: nearly all. Which of the two longer forms comes next is
// anybody's guess, so it does not branch on it.
func readShort(dst []uint32, n int, b []byte) ([]uint32, []byte) {
	i := 0
	for len(dst) < n && i+5 <= len(b) {
		c := b[i]
		if c <= 0x7f {
			dst = append(dst, uint32(c))
			i++
			continue
		}
		if c != 0xcd && c != 0xce {
			break
		}
		short := int(0xce - c) // 1 for a token in two bytes, 0 for one in four
		dst = append(dst, binary.BigEndian.Uint32(b[i+1:])>>(short*16))
		i += 5 - 2*short
	}
	return dst, b[i:]
}

func readPairs(dst []uint32, n int, b []byte) ([]uint32, []byte, error) {
	for i := range n {
		two, rest, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return dst, b, err
		}
		if two != 2 {
			return dst, b, fmt.Errorf("expected a pair, got %d", two)
		}
		first, rest, err := readToken(rest)
		if err != nil {
			return dst, b, err
		}
		second, rest, err := readToken(rest)
		if err != nil {
			return dst, b, err
		}
		if i == 0 {
			dst = append(dst, first)
		} else if dst[len(dst)-1] != first {
			return dst, b, errors.New("expected pairs of neighbours")
		}
		dst, b = append(dst, second), rest
	}
	return dst, b, nil
}

func readToken(b []byte) (uint32, []byte, error) {
	v, b, err := readUint(b, math.MaxUint32)
	return uint32(v), b, err
}
