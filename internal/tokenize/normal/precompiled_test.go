package normal

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"
)

// node is a node of the trie that a character map is made from.
type node struct {
	children map[byte]*node
	value    int // where its text starts, -1 for none
}

func newNode() *node { return &node{children: make(map[byte]*node), value: -1} }

// charsMap returns the character map that replaces keys by values.
func charsMap(mapping map[string]string) []byte {
	root := newNode()
	var texts []byte
	for _, key := range slices.Sorted(maps.Keys(mapping)) {
		at := root
		for _, b := range []byte(key) {
			if at.children[b] == nil {
				at.children[b] = newNode()
			}
			at = at.children[b]
		}
		at.value = len(texts)
		texts = append(append(texts, mapping[key]...), 0)
	}
	trie := trieBuilder{units: make([]uint32, 256), used: make([]bool, 256), bases: map[int]bool{}, first: 1}
	trie.used[0] = true
	trie.place(root, 0, 0)
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(trie.units)))
	for _, u := range trie.units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	return append(blob, texts...)
}

// precompiledSpec returns the normalizer of a character map as JSON.
func precompiledSpec(mapping map[string]string) string {
	spec, err := json.Marshal(map[string]any{"type": "Precompiled", "precompiled_charsmap": charsMap(mapping)})
	if err != nil {
		panic(err)
	}
	return string(spec)
}

// trieBuilder places nodes in a double array. The children of a node lie around
// its base, each at the distance of its label. No two nodes have the same base:
// a unit knows its label, not its parent.
type trieBuilder struct {
	units []uint32
	used  []bool
	bases map[int]bool
	first int // no unit below it is free
}

// place writes the unit of n at an index, and those of its children.
func (b *trieBuilder) place(n *node, at int, label byte) {
	labels := slices.Sorted(maps.Keys(n.children))
	if n.value >= 0 {
		labels = slices.Insert(labels, 0, 0)
	}
	offset := b.find(at, labels)
	unit := uint32(offset)<<10 | uint32(label)
	if n.value >= 0 {
		unit |= 1 << 8
		b.units[at^offset] = uint32(n.value) | 1<<31
	}
	b.units[at] = unit
	for _, label := range labels {
		if child := n.children[label]; child != nil {
			b.place(child, at^offset^int(label), label)
		}
	}
}

// find returns an offset from a unit at which all labels are free, and takes them.
func (b *trieBuilder) find(at int, labels []byte) int {
	for b.used[b.first] {
		b.first++
		b.grow(b.first)
	}
	for slot := b.first; ; slot++ {
		base := slot ^ int(labels[0])
		offset := at ^ base
		if b.bases[base] || offset == 0 || offset >= 1<<21 {
			continue
		}
		free := true
		for _, label := range labels {
			b.grow(base ^ int(label))
			free = free && !b.used[base^int(label)]
		}
		if free {
			for _, label := range labels {
				b.used[base^int(label)] = true
			}
			b.bases[base] = true
			return offset
		}
	}
}

func (b *trieBuilder) grow(index int) {
	for index >= len(b.units) {
		b.units = append(b.units, make([]uint32, 256)...)
		b.used = append(b.used, make([]bool, 256)...)
	}
}

// nfkcMap is a map like those that come with models: what single characters are
// in NFKC, up to a limit.
func nfkcMap() map[string]string {
	m := make(map[string]string)
	for r := rune(1); r < nfkcMapEnd; r++ {
		c := string(r)
		if to := string(nfkc.Normalize(nil, []byte(c))); to != c {
			m[c] = to
		}
	}
	return m
}

const nfkcMapEnd = 0x4000

func TestPrecompiled(t *testing.T) {
	small := map[string]string{
		"a": "A", "bc": "BC", "e\u0301": "é", "\r": " ", "ｱ": "ア", "\u0915": "K", "\u1100": "", "👍": "+1",
	}
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"none in the map", "xyz", "xyz"},
		{"characters", "xabc", "xAbc"},
		{"a key over two clusters is not found", "bc", "bc"},
		{"cluster", "xe\u0301x", "xéx"},
		{"the rest of a cluster is dropped", "a\u0301b", "Ab"},
		{"also of a line end", "1\r\n2", "1 2"},
		{"of six bytes by character", "a\u0301\u0302\u0303b", "A\u0301\u0302\u0303b"},
		{"of five bytes as a whole", "a\u0301\u0302b", "Ab"},
		{"wide", "ｱｱ", "アア"},
		{"conjunct is one cluster", "\u0915\u094D\u0915\u0301", "K\u094DK\u0301"},
		{"no conjunct", "\u0915\u094D\u200C\u0915\u0301", "K\u094D\u200CK"},
		{"removed", "\u1100x", "x"},
		{"emoji", "👍🏽👍", "+1🏽+1"},
		{"NUL", "a\x00a", "A\x00A"},
		{"not UTF-8", "\xFFa\xCC", "\xFFA\xCC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := apply(t, parseText(t, precompiledSpec(small)), tt.in); got != tt.want {
				t.Errorf("Normalize(%+q)\n got %+q\nwant %+q", tt.in, got, tt.want)
			}
		})
	}
}

// TestPrecompiledMap looks up every character in a large map.
func TestPrecompiledMap(t *testing.T) {
	m := nfkcMap()
	n, err := newPrecompiled(charsMap(m))
	if err != nil {
		t.Fatal(err)
	}
	for r := rune(0); r < 2*nfkcMapEnd; r++ {
		c := string(r)
		want, ok := m[c]
		if got, found := n.lookup([]byte(c)); found != ok || string(got) != want {
			t.Errorf("lookup(%U) = %+q, %v, want %+q, %v", r, got, found, want, ok)
		}
	}
}

// TestOffset: a unit holds an offset of up to 21 bits, or of 29 without the lower 8.
func TestOffset(t *testing.T) {
	for _, tt := range []struct{ unit, want uint32 }{
		{0, 0}, {5<<10 | 1<<8 | 'a', 5}, {5<<10 | 1<<9 | 'a', 5 << 8}, {1<<31 - 1, (1<<21 - 1) << 8},
	} {
		if got := offset(tt.unit); got != tt.want {
			t.Errorf("offset(%#x) = %#x, want %#x", tt.unit, got, tt.want)
		}
	}
}

func TestCluster(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []int // lengths in characters
	}{
		{"ab", []int{1, 1}},
		{"\r\n\n\r", []int{2, 1, 1}},
		{"a\u0301\u0302b", []int{3, 1}},
		{"\u0301a", []int{1, 1}},
		{"\n\u0301", []int{1, 1}},
		{"\u0600a\u0301", []int{3}},
		{"\u0600\n", []int{1, 1}},
		{"\u1100\u1100\u1161\u11A8\u1161", []int{4, 1}},
		{"가\u11A8각\u1161", []int{2, 1, 1}},
		{"🇩🇪🇫🇷🇮", []int{2, 2, 1}},
		{"🇩\u0301🇪🇫", []int{2, 2}},
		{"👨\u200D👩\u0301\u200D👧a", []int{6, 1}},
		{"a\u200D👩", []int{2, 1}},
		{"©\u200D\u200D©", []int{3, 1}},
		{"क\u094Dष\u094D\u200Dय", []int{6}},
		{"क\u094D\u200Cष", []int{3, 1}},
		{"क\u0903ष", []int{2, 1}},
		{"कष", []int{1, 1}},
	} {
		var got []int
		for s := []byte(tt.text); len(s) > 0; {
			n := cluster(s)
			got = append(got, utf8.RuneCount(s[:n]))
			s = s[n:]
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("clusters of %+q: %v, want %v", tt.text, got, tt.want)
		}
	}
}
