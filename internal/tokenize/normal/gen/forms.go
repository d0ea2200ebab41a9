package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The forms in the order of their numbers in package normal.
var forms = []struct {
	form     norm.Form
	composes bool
}{
	{norm.NFC, true},
	{norm.NFD, false},
	{norm.NFKC, true},
	{norm.NFKD, false},
}

const (
	indexBits    = 12      // of a value of the trie; the rest are the forms that care
	flagCombines = 1 << 4  // of a record, after the four forms it is not allowed in
	formsEnd     = 0x2FA40 // no character at or above this has a property
	pairBits     = 11      // of the size of the table of pairs
	hangulFirst  = 0xAC00
	hangulLast   = 0xD7A3
)

// record is what the normal forms need to know of a character. Characters with
// the same properties share one.
type record struct {
	canon, compat string // full decompositions, empty when there is none
	class         uint8  // canonical combining class
	flags         uint8
}

// properties returns the record of every character that has one.
func properties(s sets, pairs map[rune][2]rune) map[rune]record {
	laterMark, laterDecomposition := s.get("later_marks"), s.get("later_decompositions")
	combines := make(set)
	for _, p := range pairs {
		combines[p[1]] = true
	}
	for r := rune(0x1161); r <= 0x1175; r++ {
		combines[r] = true
	}
	for r := rune(0x11A8); r <= 0x11C2; r++ {
		combines[r] = true
	}
	out := make(map[rune]record)
	for r := rune(0); r < formsEnd; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		var rec record
		text := string(r)
		if !laterMark[r] {
			rec.class = norm.NFD.PropertiesString(text).CCC()
		}
		if !laterDecomposition[r] {
			for i, f := range forms {
				if f.form.String(text) != text {
					rec.flags |= 1 << i
				}
			}
			if r < hangulFirst || r > hangulLast {
				rec.canon = decomposition(norm.NFD, text)
				rec.compat = decomposition(norm.NFKD, text)
			}
		}
		if combines[r] {
			rec.flags |= flagCombines
			for i, f := range forms {
				if f.composes {
					rec.flags |= 1 << i
				}
			}
		}
		if rec != (record{}) {
			out[r] = rec
		}
	}
	return out
}

// decomposition returns the form of one character, empty when it is itself.
func decomposition(f norm.Form, text string) string {
	d := f.String(text)
	if d == text {
		return ""
	}
	return d
}

// compositions returns the primary composites and what they are made of, Hangul
// left out. A composite is what the composed form of its decomposition is; its
// first part is the composed form of all but the last character of that.
func compositions(s sets) (map[rune][2]rune, error) {
	later := s.get("later_decompositions")
	out := make(map[rune][2]rune)
	for r := rune(0); r < formsEnd; r++ {
		text := string(r)
		full := norm.NFD.String(text)
		if r >= hangulFirst && r <= 0xDFFF || later[r] || full == text || norm.NFC.String(text) != text {
			continue
		}
		second, n := utf8.DecodeLastRuneInString(full)
		head := norm.NFC.String(full[:len(full)-n])
		first, n := utf8.DecodeRuneInString(head)
		if n != len(head) || n == 0 {
			return nil, fmt.Errorf("%U: first part of the composition is %+q", r, head)
		}
		out[r] = [2]rune{first, second}
	}
	return out, nil
}

// writeForms writes the tables of the four normal forms.
func writeForms(out *bytes.Buffer, s sets) error {
	pairs, err := compositions(s)
	if err != nil {
		return err
	}
	props := properties(s, pairs)

	records := []record{{}}
	number := map[record]int{{}: 0}
	index := blocks[uint16]{size: 64}
	var stage []uint8
	values := make(map[rune]uint16)
	for first := rune(0); first < formsEnd; first += 64 {
		block := make([]uint16, 64)
		for i := range block {
			rec := props[first+rune(i)]
			n, ok := number[rec]
			if !ok {
				n = len(records)
				number[rec] = n
				records = append(records, rec)
			}
			v := uint16(n) | uint16(rec.flags&0xF)<<indexBits
			if rec.class != 0 {
				v |= 0xF << indexBits
			}
			block[i] = v
			values[first+rune(i)] = v
		}
		n := index.add(block)
		if n > 255 {
			return fmt.Errorf("more than 256 blocks")
		}
		stage = append(stage, uint8(n))
	}
	if len(records) > 1<<indexBits {
		return fmt.Errorf("%d records, the index has %d bits", len(records), indexBits)
	}

	fmt.Fprintf(out, "\nconst (\nformsEnd = %#x\nindexMask = %#x\nformShift = %d\nflagCombines = %#x\n)\n",
		formsEnd, 1<<indexBits-1, indexBits, flagCombines)
	writeArray(out, "// formIndex gives the block of formBlocks for a character's upper bits.", "formIndex", "uint8", stage)
	writeArray(out, "// formBlocks gives, 64 characters to a block, the forms that have to look at a\n// character and the index of its record.", "formBlocks", "uint16", index.values)

	text, offsets := pack(records)
	fmt.Fprintf(out, "\n// records says what the characters are that some form has to look at.\nvar records = [%d]record{", len(records))
	for i, rec := range records {
		if i%6 == 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(out, "{%#x, %#x, %d, %d, %d, %#x},", offsets[rec.canon], offsets[rec.compat], len(rec.canon), len(rec.compat), rec.class, rec.flags)
	}
	out.WriteString("\n}\n\n// decompositions is the text that the records point into.\nconst decompositions = \"\"")
	for len(text) > 0 {
		n := min(len(text), 48)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		fmt.Fprintf(out, " +\n%s", strconv.QuoteToASCII(text[:n]))
		text = text[n:]
	}
	out.WriteString("\n")

	table, err := hashPairs(pairs)
	if err != nil {
		return err
	}
	writeArray(out, "// pairs is a hash table of first<<42 | second<<21 | composite.", "pairs", "uint64", table)
	writeLeads(out, values)
	return nil
}

// pack returns a text that contains all decompositions, and where they are.
func pack(records []record) (string, map[string]int) {
	all := make(map[string]int)
	for _, rec := range records {
		all[rec.canon], all[rec.compat] = 0, 0
	}
	// Longest first, so that short ones are found inside those.
	order := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	text := ""
	for _, d := range order {
		at := strings.Index(text, d)
		if at < 0 {
			at = len(text)
			text += d
		}
		all[d] = at
	}
	return text, all
}

// hashPairs places the pairs as package normal looks for them: linear probing
// from the upper bits of a product.
func hashPairs(pairs map[rune][2]rune) ([]uint64, error) {
	table := make([]uint64, 1<<pairBits)
	if len(pairs)*2 > len(table) {
		return nil, fmt.Errorf("%d pairs are too many for a table of %d", len(pairs), len(table))
	}
	for _, r := range slices.Sorted(maps.Keys(pairs)) {
		key := uint64(pairs[r][0])<<21 | uint64(pairs[r][1])
		h := key * 0x9E3779B97F4A7C15 >> (64 - pairBits)
		for table[h] != 0 {
			h = (h + 1) % (1 << pairBits)
		}
		table[h] = key<<21 | uint64(r)
	}
	return table, nil
}

// writeLeads writes, per byte, the forms that have to look at some character that
// starts with it.
func writeLeads(out *bytes.Buffer, values map[rune]uint16) {
	leads := make([]uint8, 256)
	for r, v := range values {
		if v>>indexBits != 0 {
			var b [utf8.UTFMax]byte
			utf8.EncodeRune(b[:], r)
			leads[b[0]] |= uint8(v >> indexBits)
		}
	}
	writeArray(out, "// leads gives, per byte, the forms that have to look at some character that\n// starts with it.", "leads", "uint8", leads)
}
