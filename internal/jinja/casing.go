package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Case mapping by the full rules of Unicode, as Python has them: a character may
// become several, and a final sigma is different. The mappings to one character
// come from package unicode; the tables hold the rest.

// upperSpecial holds the characters with several in upper case.
var upperSpecial = map[rune]string{
	0x00DF: "\u0053\u0053",
	0x0149: "\u02bc\u004e",
	0x01F0: "\u004a\u030c",
	0x0390: "\u0399\u0308\u0301",
	0x03B0: "\u03a5\u0308\u0301",
	0x0587: "\u0535\u0552",
	0x1E96: "\u0048\u0331",
	0x1E97: "\u0054\u0308",
	0x1E98: "\u0057\u030a",
	0x1E99: "\u0059\u030a",
	0x1E9A: "\u0041\u02be",
	0x1F50: "\u03a5\u0313",
	0x1F52: "\u03a5\u0313\u0300",
	0x1F54: "\u03a5\u0313\u0301",
	0x1F56: "\u03a5\u0313\u0342",
	0x1F80: "\u1f08\u0399",
	0x1F81: "\u1f09\u0399",
	0x1F82: "\u1f0a\u0399",
	0x1F83: "\u1f0b\u0399",
	0x1F84: "\u1f0c\u0399",
	0x1F85: "\u1f0d\u0399",
	0x1F86: "\u1f0e\u0399",
	0x1F87: "\u1f0f\u0399",
	0x1F88: "\u1f08\u0399",
	0x1F89: "\u1f09\u0399",
	0x1F8A: "\u1f0a\u0399",
	0x1F8B: "\u1f0b\u0399",
	0x1F8C: "\u1f0c\u0399",
	0x1F8D: "\u1f0d\u0399",
	0x1F8E: "\u1f0e\u0399",
	0x1F8F: "\u1f0f\u0399",
	0x1F90: "\u1f28\u0399",
	0x1F91: "\u1f29\u0399",
	0x1F92: "\u1f2a\u0399",
	0x1F93: "\u1f2b\u0399",
	0x1F94: "\u1f2c\u0399",
	0x1F95: "\u1f2d\u0399",
	0x1F96: "\u1f2e\u0399",
	0x1F97: "\u1f2f\u0399",
	0x1F98: "\u1f28\u0399",
	0x1F99: "\u1f29\u0399",
	0x1F9A: "\u1f2a\u0399",
	0x1F9B: "\u1f2b\u0399",
	0x1F9C: "\u1f2c\u0399",
	0x1F9D: "\u1f2d\u0399",
	0x1F9E: "\u1f2e\u0399",
	0x1F9F: "\u1f2f\u0399",
	0x1FA0: "\u1f68\u0399",
	0x1FA1: "\u1f69\u0399",
	0x1FA2: "\u1f6a\u0399",
	0x1FA3: "\u1f6b\u0399",
	0x1FA4: "\u1f6c\u0399",
	0x1FA5: "\u1f6d\u0399",
	0x1FA6: "\u1f6e\u0399",
	0x1FA7: "\u1f6f\u0399",
	0x1FA8: "\u1f68\u0399",
	0x1FA9: "\u1f69\u0399",
	0x1FAA: "\u1f6a\u0399",
	0x1FAB: "\u1f6b\u0399",
	0x1FAC: "\u1f6c\u0399",
	0x1FAD: "\u1f6d\u0399",
	0x1FAE: "\u1f6e\u0399",
	0x1FAF: "\u1f6f\u0399",
	0x1FB2: "\u1fba\u0399",
	0x1FB3: "\u0391\u0399",
	0x1FB4: "\u0386\u0399",
	0x1FB6: "\u0391\u0342",
	0x1FB7: "\u0391\u0342\u0399",
	0x1FBC: "\u0391\u0399",
	0x1FC2: "\u1fca\u0399",
	0x1FC3: "\u0397\u0399",
	0x1FC4: "\u0389\u0399",
	0x1FC6: "\u0397\u0342",
	0x1FC7: "\u0397\u0342\u0399",
	0x1FCC: "\u0397\u0399",
	0x1FD2: "\u0399\u0308\u0300",
	0x1FD3: "\u0399\u0308\u0301",
	0x1FD6: "\u0399\u0342",
	0x1FD7: "\u0399\u0308\u0342",
	0x1FE2: "\u03a5\u0308\u0300",
	0x1FE3: "\u03a5\u0308\u0301",
	0x1FE4: "\u03a1\u0313",
	0x1FE6: "\u03a5\u0342",
	0x1FE7: "\u03a5\u0308\u0342",
	0x1FF2: "\u1ffa\u0399",
	0x1FF3: "\u03a9\u0399",
	0x1FF4: "\u038f\u0399",
	0x1FF6: "\u03a9\u0342",
	0x1FF7: "\u03a9\u0342\u0399",
	0x1FFC: "\u03a9\u0399",
	0xFB00: "\u0046\u0046",
	0xFB01: "\u0046\u0049",
	0xFB02: "\u0046\u004c",
	0xFB03: "\u0046\u0046\u0049",
	0xFB04: "\u0046\u0046\u004c",
	0xFB05: "\u0053\u0054",
	0xFB06: "\u0053\u0054",
	0xFB13: "\u0544\u0546",
	0xFB14: "\u0544\u0535",
	0xFB15: "\u0544\u053b",
	0xFB16: "\u054e\u0546",
	0xFB17: "\u0544\u053d",
}

// titleSpecial holds the characters with several in title case.
var titleSpecial = map[rune]string{
	0x00DF: "\u0053\u0073",
	0x0149: "\u02bc\u004e",
	0x01F0: "\u004a\u030c",
	0x0390: "\u0399\u0308\u0301",
	0x03B0: "\u03a5\u0308\u0301",
	0x0587: "\u0535\u0582",
	0x1E96: "\u0048\u0331",
	0x1E97: "\u0054\u0308",
	0x1E98: "\u0057\u030a",
	0x1E99: "\u0059\u030a",
	0x1E9A: "\u0041\u02be",
	0x1F50: "\u03a5\u0313",
	0x1F52: "\u03a5\u0313\u0300",
	0x1F54: "\u03a5\u0313\u0301",
	0x1F56: "\u03a5\u0313\u0342",
	0x1FB2: "\u1fba\u0345",
	0x1FB4: "\u0386\u0345",
	0x1FB6: "\u0391\u0342",
	0x1FB7: "\u0391\u0342\u0345",
	0x1FC2: "\u1fca\u0345",
	0x1FC4: "\u0389\u0345",
	0x1FC6: "\u0397\u0342",
	0x1FC7: "\u0397\u0342\u0345",
	0x1FD2: "\u0399\u0308\u0300",
	0x1FD3: "\u0399\u0308\u0301",
	0x1FD6: "\u0399\u0342",
	0x1FD7: "\u0399\u0308\u0342",
	0x1FE2: "\u03a5\u0308\u0300",
	0x1FE3: "\u03a5\u0308\u0301",
	0x1FE4: "\u03a1\u0313",
	0x1FE6: "\u03a5\u0342",
	0x1FE7: "\u03a5\u0308\u0342",
	0x1FF2: "\u1ffa\u0345",
	0x1FF4: "\u038f\u0345",
	0x1FF6: "\u03a9\u0342",
	0x1FF7: "\u03a9\u0342\u0345",
	0xFB00: "\u0046\u0066",
	0xFB01: "\u0046\u0069",
	0xFB02: "\u0046\u006c",
	0xFB03: "\u0046\u0066\u0069",
	0xFB04: "\u0046\u0066\u006c",
	0xFB05: "\u0053\u0074",
	0xFB06: "\u0053\u0074",
	0xFB13: "\u0544\u0576",
	0xFB14: "\u0544\u0565",
	0xFB15: "\u0544\u056b",
	0xFB16: "\u054e\u0576",
	0xFB17: "\u0544\u056d",
}

// toUpper is Python's str.upper.
func toUpper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		upperRune(&b, r)
	}
	return b.String()
}

// toLower is Python's str.lower.
func toLower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		lowerRune(&b, r, s, i)
	}
	return b.String()
}

// toTitle is Python's str.title: a letter after another is small, others large.
func toTitle(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		if inWord {
			lowerRune(&b, r, s, i)
		} else {
			titleRune(&b, r)
		}
		inWord = isCased(r)
	}
	return b.String()
}

// capitalize is Python's str.capitalize.
func capitalize(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i == 0 {
			titleRune(&b, r)
		} else {
			lowerRune(&b, r, s, i)
		}
	}
	return b.String()
}

// swapCase is Python's str.swapcase.
func swapCase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case isUpper(r):
			lowerRune(&b, r, s, i)
		case isLower(r):
			upperRune(&b, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func upperRune(b *strings.Builder, r rune) {
	if s, ok := upperSpecial[r]; ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToUpper(r))
}

func titleRune(b *strings.Builder, r rune) {
	if s, ok := titleSpecial[r]; ok {
		b.WriteString(s)
		return
	}
	b.WriteRune(unicode.ToTitle(r))
}

// lowerRune writes the lower case of r, which stands at s[i:].
func lowerRune(b *strings.Builder, r rune, s string, i int) {
	switch r {
	case 'İ':
		b.WriteString("i\u0307")
	case 'Σ':
		if isFinal(s, i) {
			b.WriteRune('ς')
		} else {
			b.WriteRune('σ')
		}
	default:
		b.WriteRune(unicode.ToLower(r))
	}
}

// isFinal reports whether the sigma at s[i:] ends a word: a letter with case is
// before it and none behind it, apart from characters that do not matter.
func isFinal(s string, i int) bool {
	before := false
	for p := i; p > 0; {
		r, n := utf8.DecodeLastRuneInString(s[:p])
		p -= n
		if !isCaseIgnorable(r) {
			before = isCased(r)
			break
		}
	}
	if !before {
		return false
	}
	for _, r := range s[i+len("Σ"):] {
		if !isCaseIgnorable(r) {
			return !isCased(r)
		}
	}
	return true
}

func isUpper(r rune) bool { return unicode.In(r, unicode.Upper, unicode.Other_Uppercase) }
func isLower(r rune) bool { return unicode.In(r, unicode.Lower, unicode.Other_Lowercase) }
func isCased(r rune) bool { return isUpper(r) || isLower(r) || unicode.IsTitle(r) }

func isCaseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A:
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
