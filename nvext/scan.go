package nvext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds how deep arrays and objects may nest, and with it the
// recursion of the scanner.
const maxDepth = 64

// ErrTooDeep is returned (wrapped) for JSON nested deeper than 64 levels.
var ErrTooDeep = errors.New("nvext: arrays and objects nest deeper than 64 levels")

func syntaxError(at int, expected string) error {
	return fmt.Errorf("nvext: invalid JSON at byte %d, expected %s", at, expected)
}

// trimValue checks that b is exactly one JSON value and returns it without the
// white space around it.
func trimValue(b []byte) ([]byte, error) {
	start := skipSpace(b, 0)
	end, err := skipValue(b, start, 0)
	if err != nil {
		return nil, err
	}
	return b[start:end], checkEnd(b, end)
}

// checkEnd checks that nothing but white space follows.
func checkEnd(b []byte, i int) error {
	if i = skipSpace(b, i); i != len(b) {
		return syntaxError(i, "the end of the value")
	}
	return nil
}

// skipValue checks the JSON value that starts at b[i] and returns the index
// just past it. depth is the number of arrays and objects around it.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, syntaxError(i, "a value")
	}
	switch c := b[i]; {
	case c == '{':
		return skipObject(b, i, depth, nil)
	case c == '[':
		return skipArray(b, i, depth, nil)
	case c == '"':
		return skipString(b, i)
	case c == '-' || isDigit(c):
		return skipNumber(b, i)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return 0, syntaxError(i, "a value")
}

// skipObject is skipValue for an object; visit, if not nil, gets the text of
// each key (with quotes) and value.
func skipObject(b []byte, i, depth int, visit func(key, value []byte)) (int, error) {
	if depth >= maxDepth {
		return 0, fmt.Errorf("at byte %d: %w", i, ErrTooDeep)
	}
	i = skipSpace(b, i+1)
	if at(b, i) == '}' {
		return i + 1, nil
	}
	for {
		key := i
		if at(b, i) != '"' {
			return 0, syntaxError(i, "a key in quotes")
		}
		keyEnd, err := skipString(b, i)
		if err != nil {
			return 0, err
		}
		i = skipSpace(b, keyEnd)
		if at(b, i) != ':' {
			return 0, syntaxError(i, "a colon")
		}
		value := skipSpace(b, i+1)
		end, err := skipValue(b, value, depth+1)
		if err != nil {
			return 0, err
		}
		if visit != nil {
			visit(b[key:keyEnd], b[value:end])
		}
		i = skipSpace(b, end)
		switch at(b, i) {
		case '}':
			return i + 1, nil
		case ',':
			i = skipSpace(b, i+1)
		default:
			return 0, syntaxError(i, "a comma or a closing brace")
		}
	}
}

// skipArray is skipValue for an array; visit, if not nil, gets the text of each
// element.
func skipArray(b []byte, i, depth int, visit func(value []byte)) (int, error) {
	if depth >= maxDepth {
		return 0, fmt.Errorf("at byte %d: %w", i, ErrTooDeep)
	}
	i = skipSpace(b, i+1)
	if at(b, i) == ']' {
		return i + 1, nil
	}
	for {
		end, err := skipValue(b, i, depth+1)
		if err != nil {
			return 0, err
		}
		if visit != nil {
			visit(b[i:end])
		}
		i = skipSpace(b, end)
		switch at(b, i) {
		case ']':
			return i + 1, nil
		case ',':
			i = skipSpace(b, i+1)
		default:
			return 0, syntaxError(i, "a comma or a closing bracket")
		}
	}
}

func skipString(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c < 0x20:
			return 0, syntaxError(i, "no control character in a string")
		case c == '\\':
			i++
			switch at(b, i) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					i++
					if !isHex(at(b, i)) {
						return 0, syntaxError(i, "a hexadecimal digit")
					}
				}
			default:
				return 0, syntaxError(i, "an escape character")
			}
		}
	}
	return 0, syntaxError(len(b), "a closing quote")
}

func skipNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	switch c := at(b, i); {
	case c == '0':
		i++
	case isDigit(c):
		i = skipDigits(b, i)
	default:
		return 0, syntaxError(i, "a digit")
	}
	if at(b, i) == '.' {
		if i++; !isDigit(at(b, i)) {
			return 0, syntaxError(i, "a digit")
		}
		i = skipDigits(b, i)
	}
	if c := at(b, i); c == 'e' || c == 'E' {
		i++
		if c := at(b, i); c == '+' || c == '-' {
			i++
		}
		if !isDigit(at(b, i)) {
			return 0, syntaxError(i, "a digit")
		}
		i = skipDigits(b, i)
	}
	return i, nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func skipWord(b []byte, i int, word string) (int, error) {
	end := i + len(word)
	if end > len(b) || string(b[i:end]) != word {
		return 0, syntaxError(i, word)
	}
	return end, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// at is b[i], or 0 past the end; 0 is valid nowhere in JSON.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unquote decodes the JSON string text, which has been scanned before.
// Invalid UTF-8 becomes U+FFFD.
func unquote(text []byte) string {
	if isPlain(text) {
		return string(text[1 : len(text)-1])
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		panic(fmt.Sprintf("nvext: scanned string %q does not decode: %v", text, err))
	}
	return s
}

// isPlain reports whether a string's text between the quotes is its value.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// field is one member of an object: its decoded key and the text of its value.
// Both may share memory with the object.
type field struct{ key, value []byte }

// splitObject checks the object that starts at b[i] and returns its fields and
// the index just past it. Of fields with the same key the last wins; it stands
// where the first stood.
func splitObject(b []byte, i int) ([]field, int, error) {
	fs := make([]field, 0, 8)
	end, err := skipObject(b, i, 0, func(key, value []byte) {
		if isPlain(key) {
			key = key[1 : len(key)-1]
		} else {
			key = []byte(unquote(key))
		}
		fs = append(fs, field{key, value})
	})
	if err != nil {
		return nil, 0, err
	}
	return lastWins(fs), end, nil
}

// lastWins removes repeated keys in place.
func lastWins(fs []field) []field {
	const few = 16 // up to here comparing all pairs is cheaper than a map
	if len(fs) > few {
		return lastWinsMap(fs)
	}
	kept := fs[:0]
next:
	for _, f := range fs {
		for i := range kept {
			if bytes.Equal(kept[i].key, f.key) {
				kept[i].value = f.value
				continue next
			}
		}
		kept = append(kept, f)
	}
	return kept
}

func lastWinsMap(fs []field) []field {
	at := make(map[string]int, len(fs))
	kept := fs[:0]
	for _, f := range fs {
		if i, ok := at[string(f.key)]; ok {
			kept[i].value = f.value
			continue
		}
		at[string(f.key)] = len(kept)
		kept = append(kept, f)
	}
	return kept
}

// parseUint64 reads plain decimal digits; ok is false for anything else and on
// overflow.
func parseUint64[T ~[]byte | ~string](s T) (v uint64, ok bool) {
	const max = 1<<64 - 1
	if len(s) == 0 {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		d := uint64(s[i] - '0')
		if v > (max-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

func saturatingAdd(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<64 - 1
}
