package openai

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxDepth is the deepest nesting of arrays and objects that is accepted.
// Engines parse recursively and give up at about a thousand.
const MaxDepth = 512

// SyntaxError says where a body stops being JSON.
type SyntaxError struct {
	Offset int    // byte offset of the fault
	Want   string // what was expected there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: expected %s", e.Offset, e.Want)
}

// MaxMembers is how many members a parsed object may have. What is parsed here has
// some dozens; a view of millions would take many times the memory of its bytes.
const MaxMembers = 4096

// ErrTooManyMembers is returned for an object with more than [MaxMembers].
var ErrTooManyMembers = fmt.Errorf("the JSON object has more than %d members", MaxMembers)

// ErrTooDeep is returned for nesting beyond [MaxDepth].
var ErrTooDeep = fmt.Errorf("JSON is nested deeper than %d levels", MaxDepth)

// Member is one member of an object: offsets into the object's bytes. The key's
// range includes its quotes.
type Member struct {
	KeyStart, KeyEnd     int
	ValueStart, ValueEnd int
}

// Object is a view over the members of one JSON object. The bytes must not
// change while it is used. Only [ParseObject] makes one; an Object is safe for
// concurrent use.
type Object struct {
	raw     []byte
	members []Member
	close   int // offset of the closing brace
}

// ParseObject finds the members of the object in raw, which may be surrounded by
// white space but by nothing else. It checks everything inside (brackets, commas,
// literals, numbers, nesting) in one pass without recursion, apart from the
// insides of strings: whoever decodes one finds bad escapes and bad UTF-8. The
// object's own keys are decodable. Errors are *[SyntaxError],
// [ErrTooDeep] and [ErrTooManyMembers].
func ParseObject(raw []byte) (Object, error) {
	p := parser{b: raw}
	p.space()
	if p.peek() != '{' {
		return Object{}, p.want("an object")
	}
	o := Object{raw: raw, members: make([]Member, 0, 16)}
	p.i++
	for first := true; ; first = false {
		start, end, err := p.member(first)
		if err != nil {
			return Object{}, err
		}
		if end == 0 {
			break
		}
		if bytes.IndexByte(raw[start:end], '\\') >= 0 {
			if _, ok := Value(raw[start:end]).Text(); !ok {
				return Object{}, &SyntaxError{Offset: start, Want: "a key with valid escapes"}
			}
		}
		m := Member{KeyStart: start, KeyEnd: end, ValueStart: p.i}
		if err := p.skip(); err != nil {
			return Object{}, err
		}
		m.ValueEnd = p.i
		if len(o.members) == MaxMembers {
			return Object{}, ErrTooManyMembers
		}
		o.members = append(o.members, m)
	}
	o.close = p.i - 1
	if err := p.end(); err != nil {
		return Object{}, err
	}
	return o, nil
}

// Raw returns the bytes the object was parsed from.
func (o *Object) Raw() []byte { return o.raw }

// Len returns the number of members, duplicates counted.
func (o *Object) Len() int { return len(o.members) }

// At returns the i-th member's decoded key and value.
func (o *Object) At(i int) (string, Value) {
	m := o.members[i]
	k, _ := Value(o.raw[m.KeyStart:m.KeyEnd]).Text()
	return k, o.raw[m.ValueStart:m.ValueEnd]
}

// Get returns the value of key, nil when absent. Of duplicate keys the last
// counts, as it does in the engines.
func (o *Object) Get(key string) Value {
	for i := len(o.members) - 1; i >= 0; i-- {
		if o.is(i, key) {
			m := o.members[i]
			return o.raw[m.ValueStart:m.ValueEnd]
		}
	}
	return nil
}

// is reports whether member i has the given key, escapes resolved.
func (o *Object) is(i int, key string) bool {
	m := o.members[i]
	inner := o.raw[m.KeyStart+1 : m.KeyEnd-1]
	// An escape is longer than what it stands for.
	if len(inner) <= len(key) {
		return string(inner) == key && strings.IndexByte(key, '\\') < 0
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return false
	}
	k, err := appendUnquoted(nil, inner)
	return err == nil && string(k) == key
}
