package openai

import "bytes"

// Media is a part of a message that is not text: an image, a recording and the like.
type Media struct {
	// Start and End are where the part is in the messages, braces included.
	Start, End int
	// Name is what the client calls it, a JSON string; nil if it has no name. Engines
	// take what has the same name for the same.
	Name Value
}

// EachMedia calls yield for each part of the messages that is not text, in order, until
// yield returns false. Parts of a kind that nobody knows count. It decodes nothing,
// allocates nothing for keys without escapes, and stops where messages is not what
// [ParseRequest] accepts.
func EachMedia(messages Value, yield func(Media) bool) {
	p := parser{b: messages}
	if p.peek() != '[' {
		return
	}
	p.i++
	for first := true; ; first = false {
		more, err := p.element(first)
		if err != nil || !more {
			return
		}
		if p.peek() == '{' {
			more = p.messageMedia(yield)
		} else {
			more = p.skip() == nil
		}
		if !more {
			return
		}
	}
}

// messageMedia moves over a message. It returns false when the walk is over.
func (p *parser) messageMedia(yield func(Media) bool) bool {
	p.i++
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil {
			return false
		}
		if keyEnd == 0 {
			return true
		}
		more := true
		if p.peek() == '[' && p.isKey(key, keyEnd, "content") {
			more = p.contentMedia(yield)
		} else {
			more = p.skip() == nil
		}
		if !more {
			return false
		}
	}
}

// contentMedia moves over the parts of a message.
func (p *parser) contentMedia(yield func(Media) bool) bool {
	p.i++
	for first := true; ; first = false {
		more, err := p.element(first)
		if err != nil {
			return false
		}
		if !more {
			return true
		}
		if p.peek() != '{' {
			if p.skip() != nil {
				return false
			}
			continue
		}
		m, isMedia, err := p.part()
		if err != nil || isMedia && !yield(m) {
			return false
		}
	}
}

// part moves over a part and tells whether it is one that is not text. What has a name
// of the client's may be media whatever its type says.
func (p *parser) part() (m Media, isMedia bool, err error) {
	m.Start = p.i
	p.i++
	var kind Value
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil {
			return m, false, err
		}
		if keyEnd == 0 {
			break
		}
		start := p.i
		if err := p.skip(); err != nil {
			return m, false, err
		}
		v := Value(p.b[start:p.i])
		switch {
		case p.isKey(key, keyEnd, "type"):
			kind = v
		case p.isKey(key, keyEnd, "uuid"):
			if v.Kind() == '"' {
				m.Name = v
			}
		}
	}
	m.End = p.i
	return m, m.Name != nil || !kind.isTextKind(), nil
}

// isTextKind reports whether a part of this type is text.
func (v Value) isTextKind() bool {
	if v.Kind() != '"' {
		return false
	}
	kind := string(v[1 : len(v)-1])
	if bytes.IndexByte(v, '\\') >= 0 {
		kind, _ = v.Text()
	}
	switch kind {
	case "text", "input_text", "output_text", "refusal", "thinking", "tool_reference":
		return true
	}
	return false
}

// isKey reports whether the key between two offsets, quotes included, is the given
// one, escapes resolved.
func (p *parser) isKey(start, end int, key string) bool {
	inner := p.b[start+1 : end-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == key
	}
	k, err := appendUnquoted(nil, inner)
	return err == nil && string(k) == key
}
