package normal

import "unicode/utf8"

// cluster returns the length of the extended grapheme cluster that s, which is
// not empty, starts with.
func cluster(s []byte) int {
	// Between two characters without a property there always is a break.
	first, size := utf8.DecodeRune(s)
	if size == len(s) {
		return size
	}
	second, _ := utf8.DecodeRune(s[size:])
	if (classOf(first)|classOf(second))&breakMask == breakOther {
		return size
	}
	var state clusterState
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRune(s[i:])
		if !state.next(classOf(r), r) && i > 0 {
			return i
		}
		i += size
	}
	return len(s)
}

// clusterState is what the rules need to remember of the characters so far.
type clusterState struct {
	last    class // break of the last character
	odd     bool  // it is the first, third, … of a run of regional indicators
	emoji   uint8 // how much of a pictograph, extenders and a joiner there is
	indic   uint8 // how much of a consonant, extenders and a linker there is
	started bool
}

// next takes in one more character and reports whether it belongs to the same
// cluster as those before it.
func (s *clusterState) next(c class, r rune) bool {
	b := c & breakMask
	joins := s.started && s.joins(b, c)
	s.odd = b == breakRegionalIndicator && !s.odd
	switch {
	case c&classPictographic != 0:
		s.emoji = 1
	case s.emoji == 1 && b == breakExtend:
	case s.emoji == 1 && b == breakZWJ:
		s.emoji = 2
	default:
		s.emoji = 0
	}
	switch {
	case c&classConsonant != 0:
		s.indic = 1
	case s.indic != 0 && c&classLinker != 0:
		s.indic = 2
	case s.indic != 0 && (b == breakExtend || b == breakZWJ) && r != zwnj:
	default:
		s.indic = 0
	}
	s.last, s.started = b, true
	return joins
}

// zwnj extends what precedes it but is in the way between consonants.
const zwnj = 0x200C

// joins reports whether there is no break between the last character and one of
// class c, whose break is b.
func (s *clusterState) joins(b, c class) bool {
	switch s.last {
	case breakCR:
		return b == breakLF
	case breakLF, breakControl:
		return false
	}
	switch b {
	case breakCR, breakLF, breakControl:
		return false
	case breakExtend, breakZWJ, breakSpacingMark:
		return true
	}
	switch s.last {
	case breakPrepend:
		return true
	case breakL:
		if b == breakL || b == breakV || b == breakLV || b == breakLVT {
			return true
		}
	case breakLV, breakV:
		if b == breakV || b == breakT {
			return true
		}
	case breakLVT, breakT:
		if b == breakT {
			return true
		}
	case breakRegionalIndicator:
		if b == breakRegionalIndicator && s.odd {
			return true
		}
	}
	return c&classPictographic != 0 && s.emoji == 2 || c&classConsonant != 0 && s.indic == 2
}
