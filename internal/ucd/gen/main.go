// Command gen writes tables.go: the Unicode 16.0 data of package ucd, made of the
// tables of Go's unicode package and what unicode16.txt adds to them.
//
// Run it in the directory of the package: go run ./gen
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/stator-ai/stator/internal/ucd"
)

// base is the version that unicode16.txt is a difference to.
const base = "15.0.0"

// pageBits is the number of low bits of a code point that select an entry of a
// page; 7 gives the smallest tables whose page numbers fit a byte.
const pageBits = 7

const pageSize = 1 << pageBits

//go:embed unicode16.txt
var additions string

// leaves are the general categories, in the order of their numbers in the output.
// Cn comes first: it is what a code point is that nothing else claims.
var leaves = []string{
	"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
	"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So",
	"Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs",
}

// properties are those that the package needs beside categories and scripts.
var properties = []string{"Other_Alphabetic", "Other_Lowercase", "Other_Uppercase", "White_Space"}

// database is the Unicode data, one entry per code point.
type database struct {
	category []uint8 // index into leaves
	script   []uint8 // index into scripts
	scripts  []string
	property map[string][]bool
}

func main() {
	log.SetFlags(0)
	if unicode.Version != base {
		log.Fatalf("gen: this Go has Unicode %s, the additions are to %s", unicode.Version, base)
	}
	db, err := load()
	if err != nil {
		log.Fatalf("gen: %v", err)
	}
	src, err := format.Source(db.source())
	if err != nil {
		log.Fatalf("gen: format: %v", err)
	}
	if err := os.WriteFile("tables.go", src, 0o644); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

// load merges Go's tables and the additions.
func load() (*database, error) {
	db := &database{
		category: make([]uint8, unicode.MaxRune+1),
		script:   make([]uint8, unicode.MaxRune+1),
		scripts:  []string{"Unknown"},
		property: make(map[string][]bool),
	}
	for i, name := range leaves[1:] {
		each(unicode.Categories[name], func(r rune) { db.category[r] = uint8(i + 1) })
	}
	for name := range unicode.Scripts {
		db.scripts = append(db.scripts, name)
	}
	for line := range strings.Lines(additions) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "script" && !slices.Contains(db.scripts, f[1]) {
			db.scripts = append(db.scripts, f[1])
		}
	}
	slices.Sort(db.scripts[1:])
	for i, name := range db.scripts {
		if t := unicode.Scripts[name]; t != nil {
			each(t, func(r rune) { db.script[r] = uint8(i) })
		}
	}
	for _, name := range properties {
		set := make([]bool, unicode.MaxRune+1)
		each(unicode.Properties[name], func(r rune) { set[r] = true })
		db.property[name] = set
	}
	return db, db.add()
}

// add applies the additions.
func (db *database) add() error {
	sc := bufio.NewScanner(strings.NewReader(additions))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if len(f) < 3 {
			return fmt.Errorf("unicode16.txt: line %q: want kind, name, ranges", sc.Text())
		}
		var set func(r rune)
		switch kind, name := f[0], f[1]; {
		case kind == "category" && slices.Contains(leaves, name):
			set = func(r rune) { db.category[r] = uint8(slices.Index(leaves, name)) }
		case kind == "script":
			set = func(r rune) { db.script[r] = uint8(slices.Index(db.scripts, name)) }
		case kind == "property" && db.property[name] != nil:
			set = func(r rune) { db.property[name][r] = true }
		default:
			return fmt.Errorf("unicode16.txt: unknown %s %q", kind, name)
		}
		for _, span := range f[2:] {
			lo, hi, ok := strings.Cut(span, "-")
			if !ok {
				hi = lo
			}
			a, err := strconv.ParseInt(lo, 16, 32)
			if err != nil {
				return fmt.Errorf("unicode16.txt: range %q: %w", span, err)
			}
			b, err := strconv.ParseInt(hi, 16, 32)
			if err != nil {
				return fmt.Errorf("unicode16.txt: range %q: %w", span, err)
			}
			for r := rune(a); r <= rune(b); r++ {
				set(r)
			}
		}
	}
	return sc.Err()
}

// each calls f for every code point of t.
func each(t *unicode.RangeTable, f func(r rune)) {
	for _, s := range t.R16 {
		for r := rune(s.Lo); r <= rune(s.Hi); r += rune(s.Stride) {
			f(r)
		}
	}
	for _, s := range t.R32 {
		for r := rune(s.Lo); r <= rune(s.Hi); r += rune(s.Stride) {
			f(r)
		}
	}
}

// class is the mask that ucd.Of is to return for r.
func (db *database) class(r rune) ucd.Class {
	var c ucd.Class
	name := leaves[db.category[r]]
	switch name[0] {
	case 'L':
		c |= ucd.Letter | ucd.Word
	case 'N':
		c |= ucd.Number
	case 'M':
		c |= ucd.Mark | ucd.Word | ucd.Upper | ucd.Lower
	case 'P':
		c |= ucd.Punct
	case 'S':
		c |= ucd.Symbol
	case 'C':
		c |= ucd.Control
	}
	switch name {
	case "Lu", "Lt":
		c |= ucd.Upper
	case "Ll":
		c |= ucd.Lower
	case "Lm", "Lo":
		c |= ucd.Upper | ucd.Lower
	case "Nd":
		c |= ucd.Digit | ucd.Word
	case "Nl", "Pc":
		c |= ucd.Word
	}
	if db.property["Other_Alphabetic"][r] || strings.ContainsRune("²³¹¼½¾", r) {
		c |= ucd.Word
	}
	if db.property["White_Space"][r] {
		c |= ucd.Space
	}
	if r == '\r' || r == '\n' {
		c |= ucd.NewLine
	}
	if db.scripts[db.script[r]] == "Han" {
		c |= ucd.Han
	}
	return c
}

// source is the text of tables.go.
func (db *database) source() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by go run ./gen; DO NOT EDIT.\n\npackage ucd\n\n")

	fmt.Fprintf(&b, "// ASCII holds Of(r) for the first 128 code points. It is not to be written to.\nvar ASCII = [128]Class{")
	for r := range rune(128) {
		number(&b, int(r), uint64(db.class(r)))
	}
	fmt.Fprintf(&b, "}\n\n")

	var pages [][]uint16
	var index []int
	for r := rune(0); r <= unicode.MaxRune; r += pageSize {
		page := make([]uint16, pageSize)
		for i := range page {
			page[i] = uint16(db.class(r + rune(i)))
		}
		at := slices.IndexFunc(pages, func(p []uint16) bool { return slices.Equal(p, page) })
		if at < 0 {
			at = len(pages)
			pages = append(pages, page)
		}
		index = append(index, at)
	}
	if len(pages) > 256 {
		log.Fatalf("gen: %d pages do not fit a byte", len(pages))
	}
	fmt.Fprintf(&b, "const pageBits = %d\n\n", pageBits)
	fmt.Fprintf(&b, "// pageOf gives the page of a code point without its low bits.\nvar pageOf = [%d]uint8{", len(index))
	for i, p := range index {
		number(&b, i, uint64(p))
	}
	fmt.Fprintf(&b, "}\n\n// pages hold classes.\nvar pages = [%d][1 << pageBits]uint16{", len(pages))
	for _, page := range pages {
		fmt.Fprint(&b, "\n{")
		for i, c := range page {
			number(&b, i, uint64(c))
		}
		fmt.Fprint(&b, "},")
	}
	fmt.Fprintf(&b, "}\n\n")

	names(&b, "categories", "the two-letter general categories by number", leaves)
	runs(&b, "categoryRuns", "says from which code point on which category holds", func(r rune) int { return int(db.category[r]) })
	names(&b, "scripts", "the scripts by number", db.scripts)
	runs(&b, "scriptRuns", "says from which code point on which script holds", func(r rune) int { return int(db.script[r]) })
	for _, name := range properties {
		id := strings.ReplaceAll(name, "_", "")
		runs(&b, strings.ToLower(id[:1])+id[1:]+"Runs", "says where the property "+name+" holds (1) or not (0)", func(r rune) int {
			if db.property[name][r] {
				return 1
			}
			return 0
		})
	}
	return b.Bytes()
}

func names(b *bytes.Buffer, id, what string, list []string) {
	fmt.Fprintf(b, "// %s are %s.\nvar %s = [...]string{", id, what, id)
	for i, n := range list {
		if i%8 == 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, "%q,", n)
	}
	fmt.Fprintf(b, "\n}\n\n")
}

// runs writes the points where value changes, each as code point << 8 | value.
func runs(b *bytes.Buffer, id, what string, value func(rune) int) {
	fmt.Fprintf(b, "// %s %s.\nvar %s = [...]uint32{", id, what, id)
	last, n := -1, 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if v := value(r); v != last {
			if n%10 == 0 {
				fmt.Fprintln(b)
			}
			fmt.Fprintf(b, "%#x,", uint32(r)<<8|uint32(v))
			last, n = v, n+1
		}
	}
	fmt.Fprintf(b, "\n}\n\n")
}

// number writes the i-th number of a table, 16 on a line.
func number(b *bytes.Buffer, i int, v uint64) {
	if i%16 == 0 {
		fmt.Fprintln(b)
	}
	fmt.Fprintf(b, "%d,", v)
}
