package split

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/onig"
)

// maxDepth is how many Sequences may be inside each other; files have one.
const maxDepth = 32

// part is one step as a file describes it.
type part struct {
	name      string     // the type in the file
	cut       *cutter    // cuts pieces
	meta      *metaspace // rewrites them
	pattern   string     // regex of a Split
	digits    bool       // a Digits
	byteLevel bool       // a ByteLevel, with:
	prefix    bool       // add_prefix_space
	regex     bool       // use_regex
}

// Parse compiles the pre_tokenizer member of a tokenizer.json; null, or nothing,
// gives a plan that leaves the text whole. Fields that a type does not have are
// ignored, as the library does. What is not supported is an error that names the
// type, field or value.
func Parse(raw []byte) (*Plan, error) {
	parts, err := parse(nil, raw, 0)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	p := &Plan{byteLevel: slices.ContainsFunc(parts, func(p part) bool { return p.byteLevel })}
	if p.steps, err = compile(parts); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	p.next, p.cuts = cover(parts)
	return p, nil
}

// compile makes the steps of the parts.
func compile(parts []part) ([]step, error) {
	var steps []step
	inBytes, rewritten := false, false
	for _, p := range parts {
		switch {
		case p.byteLevel:
			if inBytes {
				return nil, errors.New("ByteLevel: not supported after another ByteLevel")
			}
			if p.prefix {
				steps = append(steps, prefixSpace{})
				rewritten = true
			}
			if p.regex {
				steps = append(steps, &cutter{finder: scanner(nextGPT2), behavior: isolated})
			}
			inBytes = true
		case p.meta != nil:
			if inBytes {
				return nil, fmt.Errorf("%s: not supported after a ByteLevel", p.name)
			}
			if rewritten && p.meta.scheme == firstOnly {
				return nil, fmt.Errorf("%s: prepend_scheme first: not supported after a step that changes the text", p.name)
			}
			steps = append(steps, p.meta)
			rewritten = true
		case inBytes:
			steps = append(steps, &mapped{*p.cut})
		default:
			steps = append(steps, p.cut)
		}
	}
	return steps, nil
}

// parse appends what raw describes to parts: several for a Sequence and for types
// that are two steps. depth is the number of Sequences around it.
func parse(parts []part, raw []byte, depth int) ([]part, error) {
	raw = bytes.TrimSpace(raw)
	if depth == 0 && (len(raw) == 0 || bytes.Equal(raw, []byte("null"))) {
		return parts, nil
	}
	var o object
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		return nil, fmt.Errorf("want an object: %w", err)
	}
	name := required[string](&o, "type")
	if o.err != nil {
		return nil, o.err
	}
	one := func(finder finder, b behavior, invert bool) part {
		return part{name: name, cut: &cutter{finder: finder, behavior: b, invert: invert}}
	}
	switch name {
	case "Sequence":
		if depth == maxDepth {
			return nil, fmt.Errorf("%s: more than %d inside each other", name, maxDepth)
		}
		list := required[[]json.RawMessage](&o, "pretokenizers")
		for i, raw := range list {
			var err error
			if parts, err = parse(parts, raw, depth+1); err != nil {
				return nil, fmt.Errorf("%s: pretokenizers[%d]: %w", name, i, err)
			}
		}
	case "ByteLevel":
		p := part{name: name, byteLevel: true, prefix: required[bool](&o, "add_prefix_space")}
		required[bool](&o, "trim_offsets") // concerns offsets, which pieces do not have
		p.regex = optional(&o, "use_regex", true)
		parts = append(parts, p)
	case "Split":
		p := o.split()
		p.name = name
		parts = append(parts, p)
	case "Digits":
		b := contiguous
		if required[bool](&o, "individual_digits") {
			b = isolated
		}
		p := one(runes(isNumeric), b, false)
		p.digits = true
		parts = append(parts, p)
	case "Metaspace":
		parts = append(parts, o.metaspace()...)
	case "Whitespace":
		parts = append(parts, one(words{}, removed, true))
	case "WhitespaceSplit":
		parts = append(parts, one(runes(isSpace), removed, false))
	case "Punctuation":
		b := isolated
		if o.has("behavior") {
			b = choice(&o, "behavior", behaviors)
		}
		parts = append(parts, one(runes(isPunct), b, false))
	case "BertPreTokenizer":
		parts = append(parts, one(runes(isSpace), removed, false), one(runes(isPunct), isolated, false))
	case "CharDelimiterSplit":
		parts = append(parts, one(literal(o.char("delimiter")), removed, false))
	case "FixedLength":
		n := optional(&o, "length", uint64(5))
		if o.err == nil && n == 0 {
			o.fail("length", errors.New("want more than 0"))
		}
		parts = append(parts, one(fixed(n), isolated, false))
	default:
		return nil, fmt.Errorf("type %q is not supported", name)
	}
	if o.err != nil {
		return nil, fmt.Errorf("%s: %w", name, o.err)
	}
	return parts, nil
}

// fixed finds as many runes as it says, and fewer at the end.
func fixed(n uint64) scanner {
	return func(text []byte, i int) int {
		for k := uint64(0); k < n && i < len(text); k++ {
			_, size := utf8.DecodeRune(text[i:])
			i += size
		}
		return i
	}
}

// object is a JSON object being read. The first error stays.
type object struct {
	fields map[string]json.RawMessage
	err    error
}

func (o *object) has(field string) bool { _, ok := o.fields[field]; return ok }

func (o *object) fail(field string, err error) {
	if o.err == nil {
		o.err = fmt.Errorf("%s: %w", field, err)
	}
}

// required reads a field that must be there and not be null.
func required[T any](o *object, field string) T {
	var v *T
	if raw, ok := o.fields[field]; !ok {
		o.fail(field, errors.New("missing"))
	} else if err := json.Unmarshal(raw, &v); err != nil {
		o.fail(field, err)
	} else if v == nil {
		o.fail(field, errors.New("must not be null"))
	}
	if v == nil {
		v = new(T)
	}
	return *v
}

// optional reads a field that has a default when it is not there.
func optional[T any](o *object, field string, def T) T {
	if !o.has(field) {
		return def
	}
	return required[T](o, field)
}

// nullable is optional where null is the default too.
func nullable[T any](o *object, field string, def T) T {
	if string(o.fields[field]) == "null" {
		return def
	}
	return optional(o, field, def)
}

// choice reads a required field that has one of the names in values.
func choice[T any](o *object, field string, values map[string]T) T {
	s := required[string](o, field)
	v, ok := values[s]
	if !ok {
		o.fail(field, fmt.Errorf("%q is unknown", s))
	}
	return v
}

// char reads a required field that is one character.
func (o *object) char(field string) string {
	s := required[string](o, field)
	if utf8.RuneCountInString(s) != 1 {
		o.fail(field, fmt.Errorf("%q is not one character", s))
	}
	return s
}

// split reads the fields of a Split.
func (o *object) split() part {
	c := &cutter{behavior: choice(o, "behavior", behaviors), invert: required[bool](o, "invert")}
	p := part{cut: c}
	pattern := object{fields: required[map[string]json.RawMessage](o, "pattern")}
	switch {
	case o.err != nil:
	case len(pattern.fields) != 1:
		o.fail("pattern", errors.New("want one of String and Regex"))
	case pattern.has("String"):
		c.finder = literal(required[string](&pattern, "String"))
	case pattern.has("Regex"):
		p.pattern = required[string](&pattern, "Regex")
		if f, ok := known(p.pattern); ok {
			c.finder = f.next
			break
		}
		re, err := onig.Compile(p.pattern)
		if err != nil {
			pattern.fail("Regex", err)
		}
		c.finder = regex{re}
	default:
		o.fail("pattern", errors.New("want one of String and Regex"))
	}
	if pattern.err != nil {
		o.fail("pattern", pattern.err)
	}
	return p
}

// metaspace reads the fields of a Metaspace.
func (o *object) metaspace() []part {
	const name = "Metaspace"
	m := &metaspace{replacement: []byte(o.char("replacement")), scheme: always}
	if o.has("prepend_scheme") {
		m.scheme = choice(o, "prepend_scheme", schemes)
	}
	if !nullable(o, "add_prefix_space", true) && m.scheme != never {
		o.fail("add_prefix_space", errors.New("false does not agree with prepend_scheme"))
	}
	nullable(o, "str_rep", "") // what older files say again
	parts := []part{{name: name, meta: m}}
	if nullable(o, "split", true) {
		parts = append(parts, part{name: name, cut: &cutter{finder: literal(m.replacement), behavior: mergedWithNext}})
	}
	return parts
}
