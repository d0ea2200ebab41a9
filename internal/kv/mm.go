package kv

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"
)

// MMHash identifies the content of an image, a video or another object that takes
// the place of tokens in a prompt.
type MMHash uint64

// MMObject is an object in a prompt, or in one block of it.
type MMObject struct {
	Hash MMHash
	// Ranges are the tokens that stand for the object, counted from the beginning
	// of the prompt or of the block. They do not enter hashes and may be absent.
	Ranges []MMRange
}

// MMRange is the tokens from Start up to, but not including, End.
type MMRange struct{ Start, End int }

// ParseMMHash takes the hash of an object out of an engine's extra key: the first
// 16 of exactly 64 hexadecimal digits. Extra keys of other kinds, such as the names
// of adapters, are reported as not ok.
func ParseMMHash(key string) (h MMHash, ok bool) {
	if len(key) != 64 {
		return 0, false
	}
	for i := range len(key) {
		switch c := key[i] | 0x20; {
		case key[i] >= '0' && key[i] <= '9', c >= 'a' && c <= 'f':
		default:
			return 0, false
		}
	}
	n, err := strconv.ParseUint(key[:16], 16, 64)
	return MMHash(n), err == nil
}

// IdentifierHash returns the hash of the object that an engine calls by an
// identifier: that of [ParseMMHash], or of the identifier's own bytes where a request
// has named the object itself.
func IdentifierHash(identifier string) MMHash {
	if h, ok := ParseMMHash(identifier); ok {
		return h
	}
	return MMHash(xxh3.HashString(identifier))
}

// HashTokensMM is [HashTokens] for a block that objects take part in: their hashes
// follow the tokens, in ascending order, and one that is given twice is hashed
// twice. Without objects it is HashTokens. It does not allocate for up to 96
// tokens with 16 objects.
func HashTokensMM(seed uint64, tokens []uint32, objects []MMObject) LocalHash {
	if len(objects) == 0 {
		return HashTokens(seed, tokens)
	}
	var list [16]MMHash
	hashes := list[:0]
	for i := range objects {
		hashes = append(hashes, objects[i].Hash)
	}
	return hashObjects(seed, tokens, hashes)
}

// hashObjects hashes a block with the hashes of its objects, which it sorts.
func hashObjects(seed uint64, tokens []uint32, hashes []MMHash) LocalHash {
	slices.Sort(hashes)
	var buf [512]byte
	b := appendTokens(buf[:0], tokens)
	for _, h := range hashes {
		b = binary.LittleEndian.AppendUint64(b, uint64(h))
	}
	return LocalHash(xxh3.HashSeed(b, seed))
}

// AppendBlocksMM is [AppendBlocks] for a prompt with objects; objects[i] are those
// of its block i, as [MMBlocks] gives them. Blocks beyond the end of objects have
// none.
func AppendBlocksMM(dst []Block, seed uint64, tokens []uint32, blockSize int, objects [][]MMObject) []Block {
	return appendBlocksMM(dst, seed, tokens, blockSize, blockSize, objects)
}

// AppendEagleBlocksMM is [AppendEagleBlocks] for a prompt with objects, which are
// given as in [AppendBlocksMM].
func AppendEagleBlocksMM(dst []Block, seed uint64, tokens []uint32, blockSize int, objects [][]MMObject) []Block {
	return appendBlocksMM(dst, seed, tokens, blockSize, blockSize+1, objects)
}

func appendBlocksMM(dst []Block, seed uint64, tokens []uint32, stride, window int, objects [][]MMObject) []Block {
	if stride < 1 {
		return dst
	}
	first := len(dst)
	for ; len(tokens) >= window && len(objects) > 0; tokens, objects = tokens[stride:], objects[1:] {
		dst = appendBlock(dst, first, HashTokensMM(seed, tokens[:window], objects[0]))
	}
	return appendBlocks(dst, first, seed, tokens, stride, window)
}

// MMBlocks splits the objects of a prompt of total tokens by block: element i are
// the objects that have tokens in block i, each once, with ranges relative to the
// block, and nil where there are none. The block that the prompt ends in counts
// even when it is not full. What a range has outside the prompt is ignored. A total
// or block size below 1 gives no blocks.
//
// It takes time and memory for each block of each range, so that what comes from
// outside has to be bounded before.
func MMBlocks(objects []MMObject, blockSize, total int) [][]MMObject {
	if blockSize < 1 || total < 1 {
		return nil
	}
	blocks := make([][]MMObject, (total-1)/blockSize+1)
	for _, o := range objects {
		for _, r := range o.Ranges {
			start, end := max(r.Start, 0), min(r.End, total)
			for start < end {
				i := start / blockSize
				base := i * blockSize
				stop := end
				if end-base > blockSize {
					stop = base + blockSize
				}
				blocks[i] = addRange(blocks[i], o.Hash, MMRange{start - base, stop - base})
				start = stop
			}
		}
	}
	return blocks
}

func addRange(objects []MMObject, h MMHash, r MMRange) []MMObject {
	i := slices.IndexFunc(objects, func(o MMObject) bool { return o.Hash == h })
	if i < 0 {
		return append(objects, MMObject{h, []MMRange{r}})
	}
	objects[i].Ranges = append(objects[i].Ranges, r)
	return objects
}

// PadValue returns the token that stands for an object in prompts whose
// placeholders were replaced by [AppendPadded].
func PadValue(h MMHash) uint32 { return uint32(1_000_000 + h&(1<<30-1)) }

// AppendPadded appends tokens to dst with every run of placeholder replaced by the
// [PadValue] of the object that it stands for: the first run by that of the first
// object and so on, further runs by that of the last. The result carries the
// objects and is hashed without them.
//
// It returns how many runs there were. When that is not the number of objects, two
// of them may share a run, and which stands where cannot be known. Without objects
// the tokens stay as they are.
func AppendPadded(dst, tokens []uint32, placeholder uint32, objects []MMObject) (padded []uint32, runs int) {
	inRun := false
	var pad uint32
	for _, t := range tokens {
		if t != placeholder {
			inRun = false
			dst = append(dst, t)
			continue
		}
		if !inRun {
			inRun, pad = true, placeholder
			if len(objects) > 0 {
				pad = PadValue(objects[min(runs, len(objects)-1)].Hash)
			}
			runs++
		}
		dst = append(dst, pad)
	}
	return dst, runs
}
