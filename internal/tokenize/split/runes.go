package split

import "github.com/stator-ai/stator/internal/ucd"

// The library does not ask one Unicode version everywhere: patterns run on
// Oniguruma, other steps ask the Rust standard library or crates with tables of
// their own. These are those other answers.

// isSpace reports whether r is white space.
func isSpace(r rune) bool { return ucd.Of(r)&ucd.Space != 0 }

// isNumeric is char::is_numeric of Unicode 17.0: Nd, Nl and No.
func isNumeric(r rune) bool {
	return ucd.Of(r)&ucd.Number != 0 || r >= 0x11DE0 && r <= 0x11DE9 || r >= 0x16FF4 && r <= 0x16FF6
}

// IsWord is \w of the regex crate: it has the joiners, and of the Latin-1 numbers
// only the digits.
func IsWord(r rune) bool {
	switch r {
	case '²', '³', '¹', '¼', '½', '¾':
		return false
	case 0x200C, 0x200D:
		return true
	}
	return ucd.Of(r)&ucd.Word != 0
}

// isPunct is what the Punctuation step asks for: the ASCII characters that are
// neither letter, digit, space nor control, and the category P of Unicode 8.0.
func isPunct(r rune) bool {
	k := ucd.Of(r)
	if r < 0x80 {
		return k&(ucd.Punct|ucd.Symbol) != 0
	}
	if k&ucd.Punct == 0 {
		return r == 0x166D || r == 0x111C9 // other categories since
	}
	i := 0
	for i < len(laterPunct) && rune(laterPunct[i][1]) < r {
		i++
	}
	return i == len(laterPunct) || r < rune(laterPunct[i][0])
}

// laterPunct are the ranges of the punctuation of Unicode 16.0 that was none in 8.0.
var laterPunct = [...][2]uint32{
	{0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77}, {0xC84, 0xC84},
	{0x1B4E, 0x1B4F}, {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F}, {0x2E52, 0x2E5D},
	{0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89},
	{0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
	{0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B},
	{0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C},
	{0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45},
	{0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
	{0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2},
	{0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
}
