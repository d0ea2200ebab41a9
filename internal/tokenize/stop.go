package tokenize

import (
	"slices"
	"strings"
)

// Stops is a set of stop strings made ready for searching in a text that comes in
// parts. The zero value has none. It does not change and is safe for concurrent use;
// each text has a [StopFilter] of its own.
//
// It is an Aho–Corasick automaton: however many strings there are, a byte of text
// costs about the same, and the memory is about 24 bytes for each byte of the
// strings.
type Stops struct {
	include bool
	strings []string
	nodes   []stopNode // in order of depth; the last only ends the list
	roots   [256]int32 // what each byte leads to from the root
}

// stopNode is a beginning that some stop strings share.
type stopNode struct {
	first int32 // its children are the nodes from here to the next node's first
	fail  int32 // the longest other beginning that it ends with
	of    int32 // the index of a string that begins with it
	match int32 // the index of the string that is complete here, or -1
	depth int32 // its length
	label byte  // its last byte
}

// NewStops returns the set of the given strings. Empty ones never match. Include
// says that a stop string is part of the text it ends.
func NewStops(stops []string, include bool) *Stops {
	s := &Stops{include: include, strings: slices.Clone(stops)}
	var order []int32 // the strings, sorted
	for i, t := range s.strings {
		if t != "" {
			order = append(order, int32(i))
		}
	}
	if len(order) == 0 {
		return s
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := strings.Compare(s.strings[a], s.strings[b]); c != 0 {
			return c
		}
		return int(a - b)
	})
	s.build(order)
	return s
}

// build makes the nodes. Those of one depth come before those of the next, so a
// node's children and the node it fails to are there when they are needed.
func (s *Stops) build(order []int32) {
	type span struct{ lo, hi int32 } // of order: the strings that begin with a node
	spans := []span{{0, int32(len(order))}}
	s.nodes = []stopNode{{match: -1}}
	for i := 0; i < len(s.nodes); i++ {
		s.nodes[i].first = int32(len(s.nodes))
		depth := int(s.nodes[i].depth)
		if i > 0 && len(s.strings[s.nodes[i].of]) == depth {
			// The first to be complete ends the text: nothing longer can be
			// found.
			continue
		}
		at := spans[i]
		for lo := at.lo; lo < at.hi; {
			of := order[lo]
			label := s.strings[of][depth]
			hi := lo + 1
			for hi < at.hi && s.strings[order[hi]][depth] == label {
				hi++
			}
			n := stopNode{of: of, match: -1, depth: int32(depth + 1), label: label}
			if i > 0 {
				n.fail = s.step(s.nodes[i].fail, label)
				n.match = s.nodes[n.fail].match
			} else {
				s.roots[label] = int32(len(s.nodes))
			}
			if len(s.strings[of]) == depth+1 && (n.match < 0 || of < n.match) {
				n.match = of
			}
			s.nodes = append(s.nodes, n)
			spans = append(spans, span{lo, hi})
			lo = hi
		}
	}
	s.nodes = slices.Clip(append(s.nodes, stopNode{first: int32(len(s.nodes))}))
}

// step returns the node for the longest end of the text that begins a stop string,
// when it was at node and b has come.
func (s *Stops) step(node int32, b byte) int32 {
	for ; node != 0; node = s.nodes[node].fail {
		lo, hi := s.nodes[node].first, s.nodes[node+1].first
		for hi-lo > 8 {
			if mid := lo + (hi-lo)/2; s.nodes[mid].label <= b {
				lo = mid
			} else {
				hi = mid
			}
		}
		for ; lo < hi; lo++ {
			if s.nodes[lo].label == b {
				return lo
			}
		}
	}
	return s.roots[b]
}

// Filter returns a filter for one text.
func (s *Stops) Filter() StopFilter { return StopFilter{stops: s} }

// StopFilter lets a text through up to the first stop string. It holds back the
// longest end of the text that is the beginning of a stop string, and nothing else,
// since what has been sent cannot be taken back. The zero value looks for nothing.
// Not safe for concurrent use.
type StopFilter struct {
	stops *Stops
	node  int32 // what is held back is the beginning it stands for
	done  bool
	match int
}

// Write takes more text and appends what can be sent to dst. When a stop string is
// complete it returns its index in the list, otherwise -1: the first to be complete
// counts, and of two that are so at the same byte the first in the list. After that
// it drops what it is given and returns the same index.
func (f *StopFilter) Write(dst, text []byte) (out []byte, match int) {
	if f.done {
		return dst, f.match
	}
	if f.stops == nil || len(f.stops.nodes) == 0 {
		return append(dst, text...), -1
	}
	s := f.stops
	before := s.beginning(f.node)
	if s.include { // it has been sent
		before = ""
	}
	node := f.node
	for i, b := range text {
		if node == 0 && s.roots[b] == 0 { // most of a text begins no stop string
			continue
		}
		node = s.step(node, b)
		if m := int(s.nodes[node].match); m >= 0 {
			size := len(s.strings[m])
			if s.include {
				size = 0
			}
			f.done, f.match = true, m
			return appendBefore(dst, before, text[:i+1], size), m
		}
	}
	f.node = node
	hold := int(s.nodes[node].depth)
	if s.include {
		hold = 0
	}
	return appendBefore(dst, before, text, hold), -1
}

// Flush ends the text: it appends what was held back to dst, and leaves f ready for
// another text.
func (f *StopFilter) Flush(dst []byte) []byte {
	if f.node != 0 && !f.done && !f.stops.include {
		dst = append(dst, f.stops.beginning(f.node)...)
	}
	*f = StopFilter{stops: f.stops}
	return dst
}

// beginning returns what node stands for.
func (s *Stops) beginning(node int32) string {
	if node == 0 {
		return ""
	}
	n := &s.nodes[node]
	return s.strings[n.of][:n.depth]
}

// appendBefore appends before and text to dst, without their last n bytes.
func appendBefore(dst []byte, before string, text []byte, n int) []byte {
	if n >= len(text) {
		return append(dst, before[:len(before)+len(text)-n]...)
	}
	dst = append(dst, before...)
	return append(dst, text[:len(text)-n]...)
}
