package hf

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/tokenize/split"
	"github.com/stator-ai/stator/internal/ucd"
)

// AddedToken is a token that is looked for in the text before the model sees it.
type AddedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter or digit is beside it
	LStrip     bool   `json:"lstrip"`      // takes the white space before it along
	RStrip     bool   `json:"rstrip"`      // and after it
	Normalized bool   `json:"normalized"`  // looked for after normalization
	Special    bool   `json:"special"`     // left out of decoded text on request
}

// match is a place in a text where an added token stands.
type match struct {
	start, end int
	token      int // index into the matcher's tokens
}

// matcher finds the added tokens of one pass: leftmost, then longest, never
// overlapping. It is a trie that is tried at every byte that a token can begin
// with. Immutable and safe for concurrent use.
type matcher struct {
	tokens []AddedToken
	begins [256]bool
	only   int // the one byte that tokens begin with, -1 when there are several
	nodes  []node
	edges  []edge
}

type node struct {
	edges, n uint32 // where its edges are, by byte
	token    int32  // that ends here, -1 for none
}

type edge struct {
	to uint32
	b  byte
}

// newMatcher returns a matcher of tokens that are looked for as given in spellings,
// which are all different and not empty; nil when there are none.
func newMatcher(tokens []AddedToken, spellings []string) *matcher {
	if len(tokens) == 0 {
		return nil
	}
	m := &matcher{tokens: tokens, only: -1}
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(spellings[a], spellings[b]) })
	for _, t := range order {
		m.begins[spellings[t][0]] = true
	}
	first := spellings[order[0]][0]
	if spellings[order[len(order)-1]][0] == first {
		m.only = int(first)
	}
	m.build(order, spellings, 0)
	return m
}

// build makes the node of the sorted tokens, which have their first depth bytes in
// common, and returns its index.
func (m *matcher) build(order []int, spellings []string, depth int) uint32 {
	at := uint32(len(m.nodes))
	m.nodes = append(m.nodes, node{token: -1})
	if len(spellings[order[0]]) == depth {
		m.nodes[at].token = int32(order[0])
		order = order[1:]
	}
	var own []edge
	for len(order) > 0 {
		b := spellings[order[0]][depth]
		n := 1
		for n < len(order) && spellings[order[n]][depth] == b {
			n++
		}
		own = append(own, edge{m.build(order[:n], spellings, depth+1), b})
		order = order[n:]
	}
	m.nodes[at].edges, m.nodes[at].n = uint32(len(m.edges)), uint32(len(own))
	m.edges = append(m.edges, own...)
	return at
}

// longest returns the longest token that text begins with and its length; -1 for
// none.
func (m *matcher) longest(text []byte) (token, size int) {
	token = -1
	n := &m.nodes[0]
	for i, b := range text {
		if n = m.follow(n, b); n == nil {
			break
		}
		if n.token >= 0 {
			token, size = int(n.token), i+1
		}
	}
	return token, size
}

// follow returns the node after n for b, nil if there is none.
func (m *matcher) follow(n *node, b byte) *node {
	for _, e := range m.edges[n.edges : n.edges+n.n] {
		if e.b >= b {
			if e.b == b {
				return &m.nodes[e.to]
			}
			break
		}
	}
	return nil
}

// inside calls mark for each token that occurs in s and ends before s does.
func (m *matcher) inside(s string, mark func(token int)) {
	for from := range len(s) {
		n := &m.nodes[0]
		for i := from; i < len(s)-1; i++ {
			if n = m.follow(n, s[i]); n == nil {
				break
			}
			if n.token >= 0 {
				mark(int(n.token))
			}
		}
	}
}

// find returns the next place at or after from where a token can stand, with its
// bare extent.
func (m *matcher) find(text []byte, from int) (match, bool) {
	for i := from; i < len(text); i++ {
		if m.only >= 0 {
			n := bytes.IndexByte(text[i:], byte(m.only))
			if n < 0 {
				break
			}
			i += n
		} else {
			for i < len(text) && !m.begins[text[i]] {
				i++
			}
		}
		if token, size := m.longest(text[i:]); token >= 0 {
			return match{i, i + size, token}, true
		}
	}
	return match{}, false
}

// all appends the matches in text to dst, white space included that they take
// along.
func (m *matcher) all(dst []match, text []byte) []match {
	taken := 0
	for at := 0; ; {
		f, ok := m.find(text, at)
		if !ok {
			return dst
		}
		at = f.end
		t := &m.tokens[f.token]
		if t.SingleWord && !alone(text, f.start, f.end) {
			continue // a shorter token is not tried in its place
		}
		if t.LStrip {
			f.start = max(trimRight(text, f.start), taken)
		}
		if t.RStrip {
			f.end = trimLeft(text, f.end)
		}
		if f.start >= f.end { // a match before has taken all of it along
			continue
		}
		taken = f.end
		dst = append(dst, f)
	}
}

// alone reports whether no word character touches text[start:end].
func alone(text []byte, start, end int) bool {
	before, n := utf8.DecodeLastRune(text[:start])
	if n > 0 && split.IsWord(before) {
		return false
	}
	after, n := utf8.DecodeRune(text[end:])
	return n == 0 || !split.IsWord(after)
}

// trimRight returns where the white space before end begins.
func trimRight(text []byte, end int) int {
	for end > 0 {
		r, n := utf8.DecodeLastRune(text[:end])
		if ucd.Of(r)&ucd.Space == 0 {
			break
		}
		end -= n
	}
	return end
}

// trimLeft returns where the white space after start ends.
func trimLeft(text []byte, start int) int {
	for start < len(text) {
		r, n := utf8.DecodeRune(text[start:])
		if ucd.Of(r)&ucd.Space == 0 {
			break
		}
		start += n
	}
	return start
}
