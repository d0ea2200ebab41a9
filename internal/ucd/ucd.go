// Package ucd holds the character classes of Unicode 16.0 that tokenizers split
// text by. Go's own tables are of another version; a letter that one side knows and
// the other does not is a different split and so different tokens.
//
// Of answers for one code point and is made for inner loops; Table builds the set
// of a category, script or property and is made for compiling patterns.
package ucd

//go:generate go run ./gen

// Class is a set of properties of a code point, one bit each.
type Class uint32

const (
	// Letter is \p{L}.
	Letter Class = 1 << iota
	// Number is \p{N}: decimal digits, letter-like numbers and other numbers.
	Number
	// Space is White_Space.
	Space
	// NewLine is CR and LF.
	NewLine
	// Mark is \p{M}.
	Mark
	// Punct is \p{P}.
	Punct
	// Symbol is \p{S}.
	Symbol
	// Upper is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]: what the first part of a cased
	// word is made of.
	Upper
	// Lower is [\p{Ll}\p{Lm}\p{Lo}\p{M}]: what the second part of a cased word is
	// made of.
	Lower
	// Han is the script.
	Han
	// Word is what \w outside of brackets matches in Oniguruma: Alphabetic, \p{M},
	// \p{Nd}, \p{Pc}, and the six Latin-1 numbers ² ³ ¹ ¼ ½ ¾. Inside brackets it
	// does not match those six; Table("Word") is that set.
	Word
	// Digit is \p{Nd}.
	Digit
	// Control is \p{C}: control, format, surrogate, private use, unassigned.
	Control
)

// Of returns the classes of r; none when r is not a code point.
func Of(r rune) Class {
	if uint32(r)>>pageBits >= uint32(len(pageOf)) {
		return 0
	}
	return Class(pages[pageOf[uint32(r)>>pageBits]][r&(1<<pageBits-1)])
}
