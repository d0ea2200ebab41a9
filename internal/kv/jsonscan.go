package kv

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// maxDepth bounds the nesting of values that a reader skips.
const maxDepth = 100

// scanner reads one JSON text from front to back. It accepts nothing that is not
// JSON, keeps integers exact and makes no values but those asked for. Errors say
// where: the names of the members on the way, or the offset of bad syntax.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// next skips white space and returns the byte that follows, 0 at the end.
func (s *scanner) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take skips white space and then c, if that follows.
func (s *scanner) take(c byte) bool {
	if s.next() != c || s.i == len(s.b) {
		return false
	}
	s.i++
	return true
}

// unexpected is the error for whatever follows.
func (s *scanner) unexpected(want string) error {
	if s.next(); s.i == len(s.b) {
		return fmt.Errorf("expected %s, got the end", want)
	}
	return fmt.Errorf("expected %s, got %q at offset %d", want, s.b[s.i], s.i)
}

// end fails unless only white space is left.
func (s *scanner) end() error {
	if s.next(); s.i < len(s.b) {
		return s.unexpected("the end")
	}
	return nil
}

// object calls member with each key; member reads the value.
func (s *scanner) object(member func(key []byte) error) error {
	if !s.take('{') {
		return s.unexpected("an object")
	}
	if s.take('}') {
		return nil
	}
	for {
		if s.next() != '"' {
			return s.unexpected("a member's name")
		}
		key, err := s.str()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.unexpected("':'")
		}
		if err := member(key); err != nil {
			return fmt.Errorf("%.64s: %w", key, err)
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.unexpected("',' or '}'")
		}
	}
}

// array calls element for each element; element reads it.
func (s *scanner) array(element func() error) error {
	if !s.take('[') {
		return s.unexpected("an array")
	}
	if s.take(']') {
		return nil
	}
	for n := 0; ; n++ {
		if err := element(); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.unexpected("',' or ']'")
		}
	}
}

// str reads a string. The result may be part of the text.
func (s *scanner) str() ([]byte, error) {
	if !s.take('"') {
		return nil, s.unexpected("a string")
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, s.unexpected("no control character in a string")
		}
		s.i++
	}
	return nil, s.unexpected("'\"'")
}

// escaped reads the rest of a string that began at start and has a backslash.
func (s *scanner) escaped(start int) ([]byte, error) {
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			var v string
			if err := json.Unmarshal(s.b[start-1:s.i], &v); err != nil {
				return nil, err
			}
			return []byte(v), nil
		}
	}
	s.i = len(s.b)
	return nil, s.unexpected("'\"'")
}

// null reads null, if that follows.
func (s *scanner) null() bool {
	return s.literal("null")
}

// boolean reads true or false.
func (s *scanner) boolean() (bool, error) {
	switch {
	case s.literal("true"):
		return true, nil
	case s.literal("false"):
		return false, nil
	}
	return false, s.unexpected("true or false")
}

func (s *scanner) literal(word string) bool {
	s.next()
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

var errInteger = errors.New("expected an integer that fits 64 bits")

// uint reads an integer between 0 and most.
func (s *scanner) uint(most uint64) (uint64, error) {
	if c := s.next(); c < '0' || c > '9' {
		return 0, s.unexpected("an integer from 0 on")
	}
	v, err := s.digits()
	if err == nil && v > most {
		err = fmt.Errorf("expected an integer up to %d, got %d", most, v)
	}
	return v, err
}

// hash reads an integer of 64 bits, signed or not. The signed are reinterpreted.
func (s *scanner) hash() (uint64, error) {
	c := s.next()
	neg := c == '-'
	if neg {
		if s.i++; s.i < len(s.b) {
			c = s.b[s.i]
		}
	}
	if c < '0' || c > '9' {
		return 0, s.unexpected("an integer")
	}
	v, err := s.digits()
	if neg {
		if v > 1<<63 {
			return 0, errInteger
		}
		v = -v
	}
	return v, err
}

// digits reads the integer whose first digit follows at once.
func (s *scanner) digits() (uint64, error) {
	start := s.i
	var v uint64
	for ; s.i < len(s.b); s.i++ {
		c := s.b[s.i] - '0'
		if c > 9 {
			break
		}
		if v >= math.MaxUint64/10 && (v > math.MaxUint64/10 || c > math.MaxUint64%10) {
			return 0, errInteger
		}
		v = v*10 + uint64(c)
	}
	if s.b[start] == '0' && s.i > start+1 {
		return 0, errors.New("expected an integer without leading zeros")
	}
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case '.', 'e', 'E':
			return 0, errInteger
		}
	}
	return v, nil
}

// skip reads a value of any kind.
func (s *scanner) skip() error {
	switch c := s.next(); {
	case c == '{':
		return s.nested(func() error { return s.object(func([]byte) error { return s.skip() }) })
	case c == '[':
		return s.nested(func() error { return s.array(s.skip) })
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case s.literal("null"), s.literal("true"), s.literal("false"):
		return nil
	}
	return s.unexpected("a value")
}

func (s *scanner) nested(read func() error) error {
	if s.depth == maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	s.depth++
	err := read()
	s.depth--
	return err
}

// number reads a number of any kind.
func (s *scanner) number() error {
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			s.i++
			continue
		}
		break
	}
	if !json.Valid(s.b[start:s.i]) {
		return fmt.Errorf("%.32q is not a number", s.b[start:s.i])
	}
	return nil
}
