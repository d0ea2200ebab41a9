package openai

import "bytes"

// parser walks JSON without recursion. Its methods leave the cursor behind what
// they read, and on the fault when they fail. They check everything but the
// insides of strings, which are skipped at the speed of a search for their end.
type parser struct {
	b []byte
	i int
}

func (p *parser) want(what string) error { return &SyntaxError{Offset: p.i, Want: what} }

// peek returns the current byte, 0 at the end.
func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\n', '\t', '\r':
			p.i++
		default:
			return
		}
	}
}

// end checks that nothing but white space is left.
func (p *parser) end() error {
	p.space()
	if p.i != len(p.b) {
		return p.want("end of input")
	}
	return nil
}

// member steps to the next member of an object and stops on its value. It
// returns where the key is, quotes included; end is 0 when the object was closed
// instead. The cursor is behind the opening brace when first is set, and behind
// the value before otherwise.
func (p *parser) member(first bool) (start, end int, err error) {
	p.space()
	switch c := p.peek(); {
	case c == '}':
		p.i++
		return 0, 0, nil
	case first:
	case c == ',':
		p.i++
		p.space()
	default:
		return 0, 0, p.want("',' or '}'")
	}
	return p.key()
}

// element is member for arrays: it stops on the next element, or returns false
// when the array was closed.
func (p *parser) element(first bool) (bool, error) {
	p.space()
	switch c := p.peek(); {
	case c == ']':
		p.i++
		return false, nil
	case first:
	case c == ',':
		p.i++
		p.space()
	default:
		return false, p.want("',' or ']'")
	}
	return true, nil
}

// key reads a key, the colon after it and white space up to the value.
func (p *parser) key() (start, end int, err error) {
	start = p.i
	if p.peek() != '"' {
		return 0, 0, p.want("a key in double quotes")
	}
	if err := p.str(); err != nil {
		return 0, 0, err
	}
	end = p.i
	p.space()
	if p.peek() != ':' {
		return 0, 0, p.want("':'")
	}
	p.i++
	p.space()
	return start, end, nil
}

// skip moves the cursor over one value of any kind.
func (p *parser) skip() error {
	if c := p.peek(); c != '{' && c != '[' {
		return p.scalar()
	}
	// One bit per level: set for an object.
	var objects [MaxDepth / 64]uint64
	depth := 0
	for {
		// The cursor is at a value.
		switch c := p.peek(); c {
		case '{', '[':
			if depth == MaxDepth-1 { // what holds the value is a level, too
				return ErrTooDeep
			}
			bit := uint64(1) << (depth % 64)
			p.i++
			p.space()
			if c == '{' {
				if p.peek() == '}' {
					p.i++
					break
				}
				objects[depth/64] |= bit
				depth++
				if _, _, err := p.key(); err != nil {
					return err
				}
				continue
			}
			if p.peek() == ']' {
				p.i++
				break
			}
			objects[depth/64] &^= bit
			depth++
			continue
		default:
			if err := p.scalar(); err != nil {
				return err
			}
		}
		// A value ended: close levels or step to the next value.
		for {
			if depth == 0 {
				return nil
			}
			p.space()
			inObject := objects[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			c := p.peek()
			if c == ',' {
				p.i++
				p.space()
				if inObject {
					if _, _, err := p.key(); err != nil {
						return err
					}
				}
				break
			}
			if inObject && c == '}' || !inObject && c == ']' {
				p.i++
				depth--
				continue
			}
			if inObject {
				return p.want("',' or '}'")
			}
			return p.want("',' or ']'")
		}
	}
}

// scalar skips the string, number or literal at the cursor.
func (p *parser) scalar() error {
	switch c := p.peek(); {
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return p.literal("true")
	case c == 'f':
		return p.literal("false")
	case c == 'n':
		return p.literal("null")
	default:
		return p.want("a value")
	}
}

func (p *parser) literal(s string) error {
	if n := p.i + len(s); n > len(p.b) || string(p.b[p.i:n]) != s {
		return p.want("a value")
	}
	p.i += len(s)
	return nil
}

func (p *parser) number() error {
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++ // nothing may follow a leading zero
	} else if !p.digits() {
		return p.want("a digit")
	}
	if p.peek() == '.' {
		p.i++
		if !p.digits() {
			return p.want("a digit")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		if !p.digits() {
			return p.want("a digit")
		}
	}
	return nil
}

// digits skips a run of digits and reports whether there was one.
func (p *parser) digits() bool {
	start := p.i
	for p.i < len(p.b) && p.b[p.i]-'0' <= 9 {
		p.i++
	}
	return p.i > start
}

// str skips the string at the cursor.
func (p *parser) str() error {
	i := p.i + 1
	for {
		q := bytes.IndexByte(p.b[i:], '"')
		if q < 0 {
			return p.want("the string that starts here to end")
		}
		i += q
		// The opening quote ends this walk, at the latest.
		back := i
		for p.b[back-1] == '\\' {
			back--
		}
		i++
		if (i-1-back)%2 == 0 {
			p.i = i
			return nil
		}
	}
}
