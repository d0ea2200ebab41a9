package hf

import "encoding/binary"

const (
	firstWords = 1 << 9
	maxWords   = 1 << 16 // entries; about two thirds of them are used
	maxWordIDs = 1 << 18
	maxKeys    = 1 << 21 // bytes of the pieces that do not fit into an entry
	maxWordLen = 192
)

// wordCache remembers the ids of pieces. Text repeats its words, and to find one
// here costs less than to merge it again. It belongs to one goroutine at a time.
// When it is full it begins anew.
type wordCache struct {
	words []word
	used  int
	ids   []uint32
	keys  []byte
}

// word is an entry. A piece of up to 16 bytes is the key itself, a longer one lies
// in keys: adversaries can make hashes collide, so a hash alone proves nothing.
type word struct {
	lo, hi uint64 // the piece, or its hash and where it lies
	at     uint32 // the id if there is one, otherwise where the ids begin
	n      uint16 // of the ids
	size   uint16 // of the piece, with its tag; 0 is an empty entry
}

// masks keep the first n bytes of a little-endian word.
var masks = func() (m [17][2]uint64) {
	for n := range m {
		for i := range n {
			m[n][i/8] |= 0xff << (i % 8 * 8)
		}
	}
	return m
}()

// load returns the bytes text[i:j], at most 16, as two words.
func load(text []byte, i, j int) (lo, hi uint64) {
	if i+16 <= len(text) {
		m := &masks[(j-i)&31%17]
		t := text[i : i+16]
		return binary.LittleEndian.Uint64(t) & m[0], binary.LittleEndian.Uint64(t[8:]) & m[1]
	}
	var buf [16]byte
	copy(buf[:], text[i:j])
	return binary.LittleEndian.Uint64(buf[:]), binary.LittleEndian.Uint64(buf[8:])
}

// part is the tag of pieces that are parts of others: what a whole piece is, is
// looked up by other rules in some models.
const part = 1 << 15

// find returns the entry of text[i:j] with a tag, or the empty one where it would
// go.
func (c *wordCache) find(text []byte, i, j, tag int) *word {
	if c.words == nil {
		c.words = make([]word, firstWords)
	}
	mask := len(c.words) - 1
	size := uint16(j - i | tag)
	if j-i <= 16 {
		lo, hi := load(text, i, j)
		for slot := shortSlot(lo, hi, size); ; slot++ {
			w := &c.words[slot&mask]
			if w.size == 0 || w.lo == lo && w.hi == hi && w.size == size {
				return w
			}
		}
	}
	piece := text[i:j]
	h := hash(piece)
	for slot := int(h); ; slot++ {
		w := &c.words[slot&mask]
		if w.size == 0 || w.lo == h && w.size == size && string(c.keys[w.hi:w.hi+uint64(j-i)]) == string(piece) {
			return w
		}
	}
}

// shortSlot returns where the search for a short piece begins.
func shortSlot(lo, hi uint64, size uint16) int {
	return int(mix(lo^0x9e3779b97f4a7c15^uint64(size), hi^0xd6e8feb86659fd93))
}

// get appends the ids of text[i:j] to dst and reports whether they are known.
func (c *wordCache) get(dst []uint32, text []byte, i, j, tag int) ([]uint32, bool) {
	switch w := c.find(text, i, j, tag); {
	case w.size == 0:
		return dst, false
	case w.n == 1:
		return append(dst, w.at), true
	default:
		return append(dst, c.ids[w.at:w.at+uint32(w.n)]...), true
	}
}

// put remembers the ids of text[i:j].
func (c *wordCache) put(text []byte, i, j, tag int, ids []uint32) {
	w := c.find(text, i, j, tag)
	if w.size != 0 {
		return
	}
	*w = word{size: uint16(j - i | tag), n: uint16(len(ids))}
	if j-i <= 16 {
		w.lo, w.hi = load(text, i, j)
	} else {
		w.lo, w.hi = hash(text[i:j]), uint64(len(c.keys))
		c.keys = append(c.keys, text[i:j]...)
	}
	if w.n == 1 {
		w.at = ids[0]
	} else {
		w.at = uint32(len(c.ids))
		c.ids = append(c.ids, ids...)
	}
	c.used++
	if c.used*3 > len(c.words)*2 || len(c.ids) > maxWordIDs || len(c.keys) > maxKeys {
		c.grow()
	}
}

// grow doubles the table, or empties it when it is as large as it gets.
func (c *wordCache) grow() {
	old := c.words
	if len(old) == maxWords || len(c.ids) > maxWordIDs || len(c.keys) > maxKeys {
		clear(old)
		c.used, c.ids, c.keys = 0, c.ids[:0], c.keys[:0]
		return
	}
	c.words = make([]word, 2*len(old))
	mask := len(c.words) - 1
	for _, w := range old {
		if w.size == 0 {
			continue
		}
		slot := int(w.lo)
		if w.size&^part <= 16 {
			slot = shortSlot(w.lo, w.hi, w.size)
		}
		for slot &= mask; c.words[slot].size != 0; slot = (slot + 1) & mask {
		}
		c.words[slot] = w
	}
}
