package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	// tokOp is an operator or punctuation; the token's text says which.
	tokOp
)

type token struct {
	kind tokenKind
	line int
	// text is the operator, the name, the value of a string or the data.
	text string
	// num is the value of a number.
	num Value
}

func (t token) is(op string) bool       { return t.kind == tokOp && t.text == op }
func (t token) isName(name string) bool { return t.kind == tokName && t.text == name }

// String describes the token for error messages.
func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data"
	case tokVarBegin:
		return "begin of print statement"
	case tokVarEnd:
		return "end of print statement"
	case tokBlockBegin:
		return "begin of statement block"
	case tokBlockEnd:
		return "end of statement block"
	case tokString:
		return "string"
	case tokInt:
		return "integer"
	case tokFloat:
		return "float"
	}
	return "'" + t.text + "'"
}

// A lexer cuts a template into tokens. Text between tags loses whitespace as the
// tags around it ask: trim_blocks and lstrip_blocks are on.
type lexer struct {
	src  string
	pos  int
	line int
	// lineStart says whether the last match ended a line.
	lineStart bool
	toks      []token
}

// lex returns the tokens of a template, with one tokEOF at the end.
func lex(src string) ([]token, error) {
	if strings.ContainsRune(src, '\r') {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(token{kind: tokEOF})
	return l.toks, nil
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.toks = append(l.toks, t)
}

func (l *lexer) fail(format string, a ...any) error {
	return &SyntaxError{Line: l.line, Message: fmt.Sprintf(format, a...)}
}

// take moves past the next n bytes.
func (l *lexer) take(n int) {
	s := l.src[l.pos : l.pos+n]
	l.line += strings.Count(s, "\n")
	l.lineStart = strings.HasSuffix(s, "\n")
	l.pos += n
}

// root lexes the text up to the next tag and the tag.
func (l *lexer) root() error {
	rest := l.src[l.pos:]
	i := nextTag(rest)
	if i < 0 {
		l.emit(token{kind: tokData, text: rest})
		l.take(len(rest))
		return nil
	}
	kind := rest[i+1]
	n, isRaw := i+2, 0
	if kind == '%' {
		isRaw = rawBegin(rest[i:])
	}
	var sign byte
	if n < len(rest) && (rest[n] == '-' || rest[n] == '+') {
		sign = rest[n]
		n++
	}
	l.data(rest[:i], sign, kind != '{')
	l.line += strings.Count(rest[:i], "\n")
	l.pos += i
	if isRaw > 0 {
		l.take(isRaw)
		return l.raw()
	}
	l.take(n - i)
	switch kind {
	case '#':
		return l.comment()
	case '%':
		l.emit(token{kind: tokBlockBegin})
		return l.tag(tokBlockEnd)
	}
	l.emit(token{kind: tokVarBegin})
	return l.tag(tokVarEnd)
}

// nextTag returns the index of the first tag in s, -1 when there is none.
func nextTag(s string) int {
	for i := 0; ; i++ {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

// data emits the text before a tag with the sign, without the whitespace that
// the tag takes away.
func (l *lexer) data(text string, sign byte, lstrip bool) {
	switch {
	case sign == '-':
		text = trimRightSpace(text)
	case sign != '+' && lstrip:
		if at := strings.LastIndexByte(text, '\n') + 1; at > 0 || l.lineStart {
			if trimLeftSpace(text[at:]) == "" {
				text = text[:at]
			}
		}
	}
	if text != "" {
		l.emit(token{kind: tokData, text: text})
	}
}

// rawBegin returns the length of the raw tag that s begins with, else 0.
func rawBegin(s string) int {
	t := s[2:]
	if t != "" && (t[0] == '-' || t[0] == '+') {
		t = t[1:]
	}
	t, ok := strings.CutPrefix(trimLeftSpace(t), "raw")
	if !ok {
		return 0
	}
	t = trimLeftSpace(t)
	if u, ok := strings.CutPrefix(t, "-%}"); ok {
		return len(s) - len(trimLeftSpace(u))
	}
	if u, ok := strings.CutPrefix(t, "%}"); ok {
		return len(s) - len(u)
	}
	return 0
}

// raw lexes the text of a raw block and the tag that ends it.
func (l *lexer) raw() error {
	rest := l.src[l.pos:]
	for i := 0; ; i++ {
		j := strings.Index(rest[i:], "{%")
		if j < 0 {
			if rest == "" {
				return nil
			}
			return l.fail("missing end of raw directive")
		}
		i += j
		t := rest[i+2:]
		var sign byte
		if t != "" && (t[0] == '-' || t[0] == '+') {
			sign, t = t[0], t[1:]
		}
		t, ok := strings.CutPrefix(trimLeftSpace(t), "endraw")
		if !ok {
			continue
		}
		t = trimLeftSpace(t)
		n := endTag(t, "%}")
		if n == 0 {
			continue
		}
		l.data(rest[:i], sign, true)
		l.take(len(rest) - len(t) + n)
		return nil
	}
}

// endTag returns the length of the end of a block or comment that s begins with,
// together with the whitespace that goes with it, else 0.
func endTag(s, end string) int {
	if t, ok := strings.CutPrefix(s, end); ok {
		return len(s) - len(strings.TrimPrefix(t, "\n"))
	}
	if t, ok := strings.CutPrefix(s, "-"+end); ok {
		return len(s) - len(trimLeftSpace(t))
	}
	if strings.HasPrefix(s, "+"+end) {
		return 1 + len(end)
	}
	return 0
}

func (l *lexer) comment() error {
	rest := l.src[l.pos:]
	i := strings.Index(rest, "#}")
	if i < 0 {
		if rest == "" {
			return nil
		}
		return l.fail("missing end of comment tag")
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	l.take(i + endTag(rest[i:], "#}"))
	return nil
}

// tag lexes the inside of a block or print tag up to its end. The end counts
// only where brackets are closed.
func (l *lexer) tag(end tokenKind) error {
	var open []byte
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		if len(open) == 0 {
			n := 0
			if end == tokBlockEnd {
				n = endTag(rest, "%}")
			} else if t, ok := strings.CutPrefix(rest, "-}}"); ok {
				n = len(rest) - len(trimLeftSpace(t))
			} else if strings.HasPrefix(rest, "}}") {
				n = 2
			}
			if n > 0 {
				l.emit(token{kind: end})
				l.take(n)
				return nil
			}
		}
		if n := len(rest) - len(trimLeftSpace(rest)); n > 0 {
			l.take(n)
			continue
		}
		var err error
		switch c := rest[0]; {
		case isDigit(c):
			err = l.number(rest)
		case c == '\'' || c == '"':
			err = l.str(rest)
		case c == '_' || isASCIILetter(c) || c >= utf8.RuneSelf:
			err = l.name(rest)
		default:
			open, err = l.operator(rest, open)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lexer) operator(rest string, open []byte) ([]byte, error) {
	n := 1
	if len(rest) > 1 {
		switch rest[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	op := rest[:n]
	switch op {
	case "{":
		open = append(open, '}')
	case "(":
		open = append(open, ')')
	case "[":
		open = append(open, ']')
	case "}", ")", "]":
		if len(open) == 0 {
			return nil, l.fail("unexpected '%s'", op)
		}
		if want := open[len(open)-1]; want != op[0] {
			return nil, l.fail("unexpected '%s', expected '%c'", op, want)
		}
		open = open[:len(open)-1]
	case "+", "-", "/", "//", "*", "%", "**", "~", "==", "!=", ">", ">=", "<", "<=", "=", ".", ":", "|", ",", ";":
	default:
		return nil, l.fail("unexpected char %q", op)
	}
	l.emit(token{kind: tokOp, text: op})
	l.take(n)
	return open, nil
}

// number lexes an integer or a float. A number after a dot is an integer: it is
// an item of what is before the dot.
func (l *lexer) number(rest string) error {
	afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
	if n := floatLen(rest); n > 0 && !afterDot {
		f, err := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		if err != nil && f == 0 {
			return l.fail("bad number %q", rest[:n])
		}
		l.emit(token{kind: tokFloat, text: rest[:n], num: f})
		l.take(n)
		return nil
	}
	n := intLen(rest)
	text := strings.ReplaceAll(rest[:n], "_", "")
	if len(text) > maxIntDigits {
		return l.fail("integer has %d digits, at most %d", len(text), maxIntDigits)
	}
	if strings.Trim(text, "0") == "" {
		text = "0" // "00" would be octal
	}
	i, ok := new(big.Int).SetString(text, 0)
	if !ok {
		return l.fail("bad number %q", rest[:n])
	}
	l.emit(token{kind: tokInt, text: rest[:n], num: normInt(i)})
	l.take(n)
	return nil
}

// digitRun returns the length of the digits that s begins with; single
// underscores may stand between digits.
func digitRun(s string) int {
	n := 0
	for n < len(s) && (isDigit(s[n]) || n > 0 && s[n] == '_' && s[n-1] != '_' && n+1 < len(s) && isDigit(s[n+1])) {
		n++
	}
	return n
}

// floatLen returns the length of the float that s begins with, else 0.
func floatLen(s string) int {
	n := digitRun(s)
	if n == 0 {
		return 0
	}
	isFloat := false
	if n < len(s) && s[n] == '.' {
		if m := digitRun(s[n+1:]); m > 0 {
			n += 1 + m
			isFloat = true
		}
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if k := digitRun(s[m:]); k > 0 {
			return m + k
		}
	}
	if !isFloat {
		return 0
	}
	return n
}

// intLen returns the length of the integer that s, which begins with a digit,
// begins with.
func intLen(s string) int {
	run := func(i int, ok func(byte) bool) int {
		n := i
		for n < len(s) {
			switch {
			case ok(s[n]):
				n++
			case s[n] == '_' && n+1 < len(s) && ok(s[n+1]):
				n += 2
			default:
				return n
			}
		}
		return n
	}
	if s[0] != '0' {
		return run(1, isDigit)
	}
	if len(s) > 1 {
		digit := func(c byte) bool { return false }
		switch s[1] | 0x20 {
		case 'b':
			digit = func(c byte) bool { return c == '0' || c == '1' }
		case 'o':
			digit = func(c byte) bool { return '0' <= c && c <= '7' }
		case 'x':
			digit = func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
		}
		if n := run(2, digit); n > 2 {
			return n
		}
	}
	return run(1, func(c byte) bool { return c == '0' })
}

func (l *lexer) name(rest string) error {
	n := 0
	for i, r := range rest {
		if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.In(r, unicode.M, unicode.Pc, unicode.Other_ID_Start, unicode.Other_ID_Continue) {
			n = i + utf8.RuneLen(r)
			continue
		}
		break
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		return l.fail("unexpected char %q", r)
	}
	if !isIdentifier(rest[:n]) {
		return l.fail("invalid character in identifier %q", rest[:n])
	}
	l.emit(token{kind: tokName, text: rest[:n]})
	l.take(n)
	return nil
}

// str lexes a string literal.
func (l *lexer) str(rest string) error {
	quote := rest[0]
	for n := 1; n < len(rest); n++ {
		switch rest[n] {
		case '\\':
			n++
		case quote:
			s, err := unescape(rest[1:n])
			if err != nil {
				return l.fail("%s", err)
			}
			l.emit(token{kind: tokString, text: s})
			l.take(n + 1)
			return nil
		}
	}
	return l.fail("unexpected char %q: the string has no end", quote)
}

func isDigit(c byte) bool       { return '0' <= c && c <= '9' }
func isASCIILetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
