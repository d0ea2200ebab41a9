package kv

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// The most that one event of an engine may hold.
const (
	maxHashes       = 65536
	maxTokens       = 1 << 20
	maxBlockObjects = 1024
	maxObjects      = 65536
)

// What is wrong with an event. Events are counted by reason and the text is seen by
// nobody, so that it takes no more memory than the event did.
var (
	errTooLarge = errors.New("more than an engine sends")
	errNoType   = errors.New("type: missing")
	errPair     = errors.New("expected a pair of tokens that begins with the end of the one before")
	errToken    = errors.New("expected a token of 32 bits")
)

// member is a member of an engine's event.
type member uint8

const (
	mOther member = iota // or the type, which is read before all others
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

// The members of events that are arrays. Each release of an engine appended some; the
// locality, and the kind of what was removed, are only Dynamo's.
var (
	storedArray = []member{
		mOther, mHashes, mParent, mTokens, mBlockSize, mLoraID, mMedium, mLoraName, mExtraKeys, mGroup, mKind,
		mOther, mLocality,
	}
	removedArray = []member{mOther, mHashes, mMedium, mGroup, mKind, mOther, mLocality}
)

func memberOf(key []byte) member {
	switch string(key) {
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
	tells     bool // it is of a form that has extra keys
	paired    bool // it is of a form in which objects among them are pairs
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

// reset forgets the event, and the payload it was part of.
func (ev *wireEvent) reset() {
	*ev = wireEvent{hashes: ev.hashes[:0], tokens: ev.tokens[:0]}
}

// read reads an event, an array or a map, and returns what follows. Only what was
// stored or removed is read further than its type. On an error the event is of no
// use, and what follows is not known.
func (ev *wireEvent) read(b []byte) ([]byte, error) {
	ev.reset()
	if msgp.NextType(b) == msgp.MapType {
		return ev.readMap(b)
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if n == 0 {
		return b, errNoType
	}
	if ev.kind, rest, err = readKind(rest); err != nil {
		return b, err
	}
	order := removedArray
	switch ev.kind {
	case Stored:
		order = storedArray
		// vLLM tells of extra keys since 0.17, and of groups since 0.20, a release
		// after objects among the keys became pairs.
		ev.tells, ev.paired = n >= 9, n >= 10
	case Removed:
	default:
		return skipValue(b)
	}
	for i := 1; i < int(n); i++ {
		m := mOther
		if i < len(order) {
			m = ev.sniff(order[i], rest)
		}
		if rest, err = ev.readMember(m, rest); err != nil {
			return b, err
		}
	}
	return rest, nil
}

// sniff tells apart what several engines write at the same place of an array.
func (ev *wireEvent) sniff(m member, b []byte) member {
	switch {
	case ev.kind == Stored && m == mLoraName && msgp.NextType(b) == msgp.MapType:
		return mMetadata
	case ev.kind == Stored && m == mGroup && msgp.NextType(b) == msgp.ArrayType:
		return mMMInfos
	case ev.kind == Removed && m == mKind:
		// What is not a kind is some other release's.
		if s, _, err := msgp.ReadStringZC(b); err != nil || attentionOf(s) == UnknownKind {
			return mOther
		}
	case m == mLocality:
		s, _, err := msgp.ReadStringZC(b)
		if err != nil || !isLocal(s) && !strings.EqualFold(string(s), "REMOTE") {
			return mOther
		}
	}
	return m
}

func isLocal(locality []byte) bool { return strings.EqualFold(string(locality), "LOCAL") }

func (ev *wireEvent) readMap(b []byte) ([]byte, error) {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if ev.kind, err = findKind(n, rest); err != nil {
		return b, err
	}
	if ev.kind != Stored && ev.kind != Removed {
		return skipValue(b)
	}
	ev.tells, ev.paired = true, true
	for ; n > 0; n-- {
		var key []byte
		if key, rest, err = msgp.ReadMapKeyZC(rest); err != nil {
			return b, err
		}
		if rest, err = ev.readMember(memberOf(key), rest); err != nil {
			return b, err
		}
	}
	return rest, nil
}

// findKind reads the type among n members, which is the first of what engines write.
func findKind(n uint32, b []byte) (Kind, error) {
	for ; n > 0; n-- {
		key, rest, err := msgp.ReadMapKeyZC(b)
		if err != nil {
			return 0, err
		}
		if string(key) == "type" {
			kind, _, err := readKind(rest)
			return kind, err
		}
		if b, err = skipValue(rest); err != nil {
			return 0, err
		}
	}
	return 0, errNoType
}

func (ev *wireEvent) readMember(m member, b []byte) (rest []byte, err error) {
	if m == mOther {
		return skipValue(b)
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
	rest, err = skipValue(b)
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
			return dst, b, errPair
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
			return dst, b, errPair
		}
		dst, b = append(dst, second), rest
	}
	return dst, b, nil
}

func readToken(b []byte) (uint32, []byte, error) {
	v, b, err := msgp.ReadUint64Bytes(b)
	if err == nil && v > math.MaxUint32 {
		err = errToken
	}
	return uint32(v), b, err
}
