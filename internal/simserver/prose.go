package simserver

import (
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize"
)

// endToken is the token that ends an answer. It is what a chat turn ends with,
// so that an answer sent back as a message continues the same token sequence.
const endToken = tokenize.IMEnd

// prose writes the answer. The next token is a pure function of the seed and all
// tokens before it, prompt and answer alike: whoever is given a prompt and the
// beginning of its answer as one prompt writes the rest of that answer.
//
// The text is a chain of words. At the start of each sentence the hash of all
// tokens so far picks a pattern; at the start of each word the hash picks the
// word; inside a word the next byte is known. What must be remembered is thus
// the hash at two places and how far the current word has come, which takes
// constant time to keep up per token.
type prose struct {
	seed     uint64
	hash     uint64 // of all tokens so far
	sentence uint64 // hash at the start of the sentence
	word     uint64 // hash at the start of the word
	words    int    // words of the sentence before this one
	length   int    // tokens since the start of the word
	last     uint32 // the token before

	pattern []slot // of the sentence; nil when it is to be chosen

	unit   [longestUnit]byte // the word to write, with its mark
	size   int
	final  bool // the unit ends a sentence
	astray bool // the tokens since the start of the word are not the unit's
}

// prime starts the text after the given prompt.
func (p *prose) prime(seed uint64, prompt []uint32) {
	*p = prose{seed: mix(seed), sentence: firstHash, word: firstHash, hash: firstHash, last: endToken}
	start := 0
	for i, id := range prompt {
		if p.advance(id) {
			start = i + 1
		}
	}
	p.choose()
	for i, id := range prompt[start:] {
		p.compare(i, id)
	}
}

// next returns the token that follows. The end of the answer is drawn only when
// mayEnd is set; otherwise the text goes on. The token is not taken as written
// until push is called with it.
func (p *prose) next(mayEnd bool) uint32 {
	switch {
	case p.astray:
		return ' '
	case p.length < p.size:
		return uint32(p.unit[p.length])
	case p.final && mayEnd && mix(p.seed^p.word^endSalt)%100 < endPercent:
		return endToken
	default:
		return ' '
	}
}

// push records that id follows.
func (p *prose) push(id uint32) {
	if p.advance(id) {
		p.choose()
	} else {
		p.compare(p.length-1, id)
	}
}

// run appends up to n of the tokens that follow to dst, as far as they are sure to
// be characters of one byte, and records them. It does what next and push do for
// each, in less time.
func (p *prose) run(dst []byte, n int) []byte {
	for n > 0 && !p.astray {
		if p.length == p.size && !p.final { // between two words
			dst = append(dst, ' ')
			n--
			p.push(' ')
			continue
		}
		rest := p.unit[p.length:min(p.size, p.length+n)]
		h, ascii := p.hash, 0
		for ascii < len(rest) && rest[ascii] < utf8.RuneSelf {
			h = fold(h, uint32(rest[ascii]))
			ascii++
		}
		if ascii == 0 {
			break
		}
		dst = append(dst, rest[:ascii]...)
		n -= ascii
		p.hash, p.last = h, uint32(rest[ascii-1])
		p.length += ascii
	}
	return dst
}

// advance folds id into the hash and reports whether a word starts after it.
func (p *prose) advance(id uint32) bool {
	p.hash = fold(p.hash, id)
	last := p.last
	p.last = id
	switch {
	case id >= 256, id == '\n', id == ' ' && (last == '.' || last == '?' || last == '!'):
		p.sentence, p.words, p.pattern = p.hash, 0, nil
	case id == ' ':
		if p.length > 0 { // not one of several spaces
			p.words++
		}
	default:
		p.length++
		return false
	}
	p.word, p.length = p.hash, 0
	return true
}

// choose picks the word that starts here.
func (p *prose) choose() {
	if p.pattern == nil {
		p.pattern = sentences[mix(p.seed^p.sentence)%uint64(len(sentences))]
	}
	at := p.words
	if at >= len(p.pattern) {
		at %= len(p.pattern)
	}
	s := &p.pattern[at]
	p.size = copy(p.unit[:], s.words[mix(p.seed^p.word^wordSalt)%uint64(len(s.words))])
	if p.words == 0 {
		p.unit[0] -= 'a' - 'A'
	}
	if s.mark != 0 {
		p.unit[p.size] = s.mark
		p.size++
	}
	p.final = at == len(p.pattern)-1
	p.astray = false
}

// compare checks the i-th token of the word against the one chosen.
func (p *prose) compare(i int, id uint32) {
	p.astray = p.astray || i >= p.size || id != uint32(p.unit[i])
}

const (
	// endPercent is how often an answer ends after a sentence; sentences are
	// some 55 bytes long, so that an answer has about 200.
	endPercent = 28

	firstHash = 0x51_7c_c1_b7_27_22_0a_95
	wordSalt  = 0x8c_b9_2b_a7_2f_3d_8d_d7
	endSalt   = 0x2d_35_8d_cc_aa_6c_78_a5
)

// fold extends a hash by one token.
func fold(h uint64, id uint32) uint64 {
	h = (h ^ uint64(id)) * 0x9e_37_79_b9_7f_4a_7c_15
	return h ^ h>>29
}

// mix spreads the bits of x over the whole word.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf_58_47_6d_1c_e4_e5_b9
	x = (x ^ x>>27) * 0x94_d0_49_bb_13_31_11_eb
	return x ^ x>>31
}
