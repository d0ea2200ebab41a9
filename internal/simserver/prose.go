package simserver

import "math/bits"

// prose writes the answer. The next token is a pure function of the seed and all
// tokens before it, prompt and answer alike: whoever is given a prompt and the
// beginning of its answer as one prompt writes the rest of that answer.
//
// The text is a chain of words. At the start of each sentence the hash of all
// tokens so far picks a pattern; at the start of each word the hash picks the
// word, and its tokens are known. Both places can be told from the tokens: a
// sentence starts after a mark, a line or a turn, and a word with a space. A prompt
// that stops in the middle of something else is followed by a new word.
//
// The tokens are those that the tokenizer would make of the text: words with their
// spaces and marks are encoded one by one, and the vocabularies do not join them.
type prose struct {
	v    *vocabulary
	seed uint64
	hash uint64 // of all tokens so far

	pattern *sentence // of the sentence
	bare    bool      // the sentence begins without a space
	words   int       // words of the sentence before this one
	unit    *unit     // the word to write
	length  int       // tokens since the start of the word
	astray  bool      // they are not the unit's
	over    bool      // a sentence of ours has just ended, and the answer may
}

// prime starts the text after the given prompt.
func (p *prose) prime(v *vocabulary, seed uint64, prompt []uint32) {
	*p = prose{v: v, seed: mix(seed), hash: firstHash}
	// What came before the last sentence counts by its hash alone. A sentence that
	// ends the prompt is looked at, since it may be one of ours.
	start, before := max(len(prompt)-1, 0), breaksOff
	for ; start > 0; start-- {
		if k := v.kind(prompt[start-1]); k >= ends {
			before = k
			break
		}
	}
	for _, id := range prompt[:start] {
		p.hash = fold(p.hash, id)
	}
	p.begin(before)
	for _, id := range prompt[start:] {
		p.push(id)
	}
}

// next returns the token that follows. The end of the answer is drawn only when
// mayEnd is set; otherwise the text goes on. The token is not taken as written
// until push is called with it.
func (p *prose) next(mayEnd bool) uint32 {
	if p.over && mayEnd && p.drawsEnd() {
		return p.v.end
	}
	if p.astray {
		p.words++
		p.choose()
	}
	return p.unit.ids[p.length]
}

// push records that id follows.
func (p *prose) push(id uint32) {
	p.over = false
	if !p.expects(id) && p.length > 0 && p.v.kind(id) == opens {
		p.words++
		p.choose()
	}
	expected := p.expects(id)
	p.hash = fold(p.hash, id)
	p.length++
	switch {
	case !expected:
		p.astray = true
		if k := p.v.kind(id); k >= ends {
			p.begin(k)
		}
	case p.length == len(p.unit.ids):
		p.complete()
	}
}

// run appends words that follow to dst, of up to n tokens together, and records
// them. It does what next and push do for each token, in less time, and stops where
// the answer may end or something else than whole words is to be written.
func (p *prose) run(dst []byte, n int) (out []byte, tokens int) {
	for !p.astray && p.length == 0 && tokens+len(p.unit.ids) <= n && !(p.over && p.drawsEnd()) {
		dst = append(dst, p.unit.text...)
		tokens += len(p.unit.ids)
		for _, id := range p.unit.ids {
			p.hash = fold(p.hash, id)
		}
		p.over = false
		p.complete()
	}
	return dst, tokens
}

// expects reports whether id is the next token of the word to write.
func (p *prose) expects(id uint32) bool { return !p.astray && p.unit.ids[p.length] == id }

// begin starts a sentence after a token of the given kind.
func (p *prose) begin(after kind) {
	p.pattern = &p.v.sentences[pick(p.seed^p.hash, len(p.v.sentences))]
	p.bare, p.words = after == breaksOff, 0
	p.choose()
}

// complete goes on after the last token of the unit.
func (p *prose) complete() {
	if p.words >= len(p.pattern.words)-1 {
		p.begin(ends)
		p.over = true
		return
	}
	p.words++
	p.choose()
}

// choose picks the word that starts here. Where a sentence has gone on for too long
// it is a last one.
func (p *prose) choose() {
	units := p.pattern.words[min(p.words, len(p.pattern.words)-1)]
	if p.bare && p.words == 0 {
		units = p.pattern.first
	}
	p.unit = &units[pick(p.seed^p.hash^wordSalt, len(units))]
	p.length, p.astray = 0, false
}

// drawsEnd reports whether the answer ends here if it may.
func (p *prose) drawsEnd() bool { return pick(p.seed^p.hash^endSalt, 1000) < p.v.endPermille }

const (
	firstHash = 0x51_7c_c1_b7_27_22_0a_95
	wordSalt  = 0x8c_b9_2b_a7_2f_3d_8d_d7
	endSalt   = 0x2d_35_8d_cc_aa_6c_78_a5
)

// fold extends a hash by one token.
func fold(h uint64, id uint32) uint64 {
	h = (h ^ uint64(id)) * 0x9e_37_79_b9_7f_4a_7c_15
	return h ^ h>>29
}

// pick makes a number below n of x.
func pick(x uint64, n int) int {
	high, _ := bits.Mul64(mix(x), uint64(n))
	return int(high)
}

// mix spreads the bits of x over the whole word.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf_58_47_6d_1c_e4_e5_b9
	x = (x ^ x>>27) * 0x94_d0_49_bb_13_31_11_eb
	return x ^ x>>31
}
