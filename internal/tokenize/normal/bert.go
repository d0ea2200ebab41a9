package normal

import "unicode/utf8"

// The steps of BertNormalizer, in their order.
var (
	bertClean   = runes{classBertDrop | classBertSpace, appendCleaned}
	bertChinese = runes{classChinese, appendSpaced}
	bertAccents = runes{classNonspacing, appendNothing}
)

// bert returns the steps that the members ask for.
func (m members) bert() ([]Normalizer, error) {
	var steps []Normalizer
	clean, err := get[bool](m, "clean_text")
	if err != nil {
		return nil, err
	}
	if clean {
		steps = append(steps, bertClean)
	}
	chinese, err := get[bool](m, "handle_chinese_chars")
	if err != nil {
		return nil, err
	}
	if chinese {
		steps = append(steps, bertChinese)
	}
	lower, err := get[bool](m, "lowercase")
	if err != nil {
		return nil, err
	}
	accents := lower
	if raw, ok := m["strip_accents"]; ok && string(raw) != "null" {
		if accents, err = get[bool](m, "strip_accents"); err != nil {
			return nil, err
		}
	}
	if accents {
		steps = append(steps, nfd, bertAccents)
	}
	if lower {
		steps = append(steps, lowercase)
	}
	return steps, nil
}

// appendCleaned appends a space for the kinds of white space and nothing for
// control characters and the like.
func appendCleaned(dst []byte, r rune) []byte {
	if classOf(r)&classBertDrop == 0 {
		dst = append(dst, ' ')
	}
	return dst
}

// appendSpaced appends r between spaces.
func appendSpaced(dst []byte, r rune) []byte {
	dst = append(dst, ' ')
	dst = utf8.AppendRune(dst, r)
	return append(dst, ' ')
}
