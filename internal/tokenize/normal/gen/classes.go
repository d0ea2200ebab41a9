package main

import (
	"bytes"
	"fmt"
	"unicode"
)

// The grapheme cluster breaks in the order of their numbers. Other is 0.
var breaks = []string{
	"Other", "CR", "LF", "Control", "Extend", "ZWJ", "RegionalIndicator", "Prepend", "SpacingMark",
	"L", "V", "T", "LV", "LVT",
}

// The other properties, one bit each, above the four of the break.
var bits = []struct{ name, doc string }{
	{"Pictographic", "Extended_Pictographic"},
	{"Consonant", "Indic_Conjunct_Break=Consonant"},
	{"Linker", "Indic_Conjunct_Break=Linker"},
	{"Upper", "has another lower case"},
	{"Accent", "a mark for StripAccents"},
	{"Nonspacing", "a nonspacing mark for BertNormalizer"},
	{"BertDrop", "cleaned away by BertNormalizer"},
	{"BertSpace", "a space for BertNormalizer, U+0020 left out"},
	{"Chinese", "a Chinese character for BertNormalizer"},
	{"NmtDrop", "dropped by Nmt"},
	{"NmtSpace", "a space for Nmt, U+0020 left out"},
}

const breakBits = 4

// writeClasses writes the classes of characters.
func writeClasses(out *bytes.Buffer, s sets) {
	bit := make(map[string]uint16)
	out.WriteString("\n// The classes of a character: its grapheme cluster break in the lower bits, then\n// one bit per property.\nconst (\n")
	for i, name := range breaks {
		fmt.Fprintf(out, "break%s class = %d\n", name, i)
	}
	fmt.Fprintf(out, "\nbreakMask class = %#x\n\n", 1<<breakBits-1)
	for i, b := range bits {
		bit[b.name] = 1 << (breakBits + i)
		fmt.Fprintf(out, "class%s class = 1 << %d // %s\n", b.name, breakBits+i, b.doc)
	}
	out.WriteString(")\n")

	of := classifier(s, bit)
	pages, leafs := blocks[uint16]{size: 64}, blocks[uint16]{size: 64}
	var stage []uint8
	for first := rune(0); first <= unicode.MaxRune; first += 64 * 64 {
		page := make([]uint16, 64)
		for i := range page {
			block := make([]uint16, 64)
			for j := range block {
				block[j] = of(first + rune(i*64+j))
			}
			page[i] = uint16(leafs.add(block))
		}
		stage = append(stage, uint8(pages.add(page)))
	}
	writeArray(out, "// classIndex gives the page of classPages for a character's upper bits.", "classIndex", "uint8", stage)
	writeArray(out, "// classPages gives, 64 blocks to a page, the block of classBlocks.", "classPages", "uint16", pages.values)
	writeArray(out, "// classBlocks gives the classes, 64 characters to a block.", "classBlocks", "class", leafs.values)
}

// classifier returns the function from a character to its class.
func classifier(s sets, bit map[string]uint16) func(rune) uint16 {
	number := make(map[string]uint16)
	for i, name := range breaks {
		number[name] = uint16(i)
	}
	byBreak := []struct {
		name string
		set  set
	}{
		{"CR", set{'\r': true}},
		{"LF", set{'\n': true}},
		{"Control", s.get("grapheme_control")},
		{"Extend", s.get("grapheme_extend")},
		{"ZWJ", set{0x200D: true}},
		{"RegionalIndicator", s.get("regional_indicator")},
		{"Prepend", s.get("grapheme_prepend")},
		{"SpacingMark", s.get("grapheme_spacing_mark")},
		{"L", s.get("grapheme_l")},
		{"V", s.get("grapheme_v")},
		{"T", s.get("grapheme_t")},
	}
	byBit := map[string]set{
		"Pictographic": s.get("pictographic"),
		"Consonant":    s.get("conjunct_consonant"),
		"Linker":       s.get("conjunct_linker"),
		"BertDrop":     s.get("bert_drop"),
		"Chinese":      s.get("bert_chinese"),
		"NmtDrop":      s.get("nmt_drop"),
		"NmtSpace":     s.get("nmt_space"),
	}
	laterUpper := s.get("later_upper")
	accentsKept, accentsMore := s.get("accents_kept"), s.get("accents_more")
	nonspacingKept, nonspacingMore := s.get("nonspacing_kept"), s.get("nonspacing_more")
	return func(r rune) uint16 {
		var v uint16
		if r >= hangulFirst && r <= hangulLast {
			v = number["LVT"]
			if (r-hangulFirst)%28 == 0 {
				v = number["LV"]
			}
		}
		for _, b := range byBreak {
			if b.set[r] {
				v = number[b.name]
			}
		}
		for name, set := range byBit {
			if set[r] {
				v |= bit[name]
			}
		}
		if unicode.ToLower(r) != r || laterUpper[r] {
			v |= bit["Upper"]
		}
		if unicode.Is(unicode.M, r) && !accentsKept[r] || accentsMore[r] {
			v |= bit["Accent"]
		}
		if unicode.Is(unicode.Mn, r) && !nonspacingKept[r] || nonspacingMore[r] {
			v |= bit["Nonspacing"]
		}
		if unicode.Is(unicode.White_Space, r) && r != ' ' && v&bit["BertDrop"] == 0 {
			v |= bit["BertSpace"]
		}
		return v
	}
}
