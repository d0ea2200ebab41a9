package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The backgrounds of tokens, by turns, and that of special tokens. Each undoes the
// one before it and names both colours, so that it can be read on any terminal.
var (
	tokenStyles = [...]string{
		"\x1b[0;38;5;16;48;5;189m", // lavender
		"\x1b[0;38;5;16;48;5;194m", // green
		"\x1b[0;38;5;16;48;5;223m", // orange
		"\x1b[0;38;5;16;48;5;224m", // pink
		"\x1b[0;38;5;16;48;5;159m", // blue
	}
	specialStyle = "\x1b[0;1;38;5;231;48;5;90m"
)

const plainStyle = "\x1b[0m"

// useColor decides whether tokens are coloured. The word is auto, always or never.
func useColor(word string, terminal bool, getenv func(string) string) bool {
	if word != "auto" {
		return word == "always"
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// painter writes the tokens of a text in colours. Nothing in a text reaches the
// terminal as a command. Errors of w are those of its Flush.
type painter struct {
	w    *bufio.Writer
	turn int
	on   bool // a style is in force
	open bool // a line has begun
	buf  []byte
}

// token writes the text of a token, which may be empty: then there is nothing to
// see, and the next one has the colour that it would have had.
func (p *painter) token(text []byte, special bool) {
	if len(text) == 0 {
		return
	}
	style := specialStyle
	if !special {
		style = tokenStyles[p.turn%len(tokenStyles)]
		p.turn++
	}
	p.w.WriteString(style)
	p.on = true
	for len(text) > 0 {
		i := bytes.IndexAny(text, "\n\t")
		if i < 0 {
			i = len(text)
		}
		if !p.on {
			p.w.WriteString(style)
			p.on = true
		}
		p.open = true
		p.buf = appendVisible(p.buf[:0], text[:i], "")
		p.w.Write(p.buf)
		if text = text[i:]; len(text) == 0 {
			return
		}
		switch text[0] {
		case '\t':
			p.w.WriteString("→\t")
		case '\n': // a background that is in force would fill the next line
			p.w.WriteString("⏎" + plainStyle + "\n")
			p.on, p.open = false, false
		}
		text = text[1:]
	}
}

// end leaves the terminal as it was, at the beginning of a line.
func (p *painter) end() {
	if p.on {
		p.w.WriteString(plainStyle)
	}
	if p.open {
		p.w.WriteByte('\n')
	}
	p.on, p.open = false, false
}

// unseen reports whether a character is a command to the terminal, or changes how
// others look without being seen: controls, and what only formats.
func unseen(r rune) bool {
	if r < 0xa0 {
		return r < ' ' || r >= 0x7f
	}
	return r == 0x2028 || r == 0x2029 || unicode.Is(unicode.Cf, r)
}

// appendVisible appends text with each unseen character as one that can be seen: ␛
// for a control of ASCII, <U+200B> for others, <0xE2> for a byte that is not UTF-8.
// The ASCII characters in keep stay as they are.
func appendVisible(dst, text []byte, keep string) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, "<0x%02X>", text[0])
		case !unseen(r) || r < 0x80 && strings.IndexByte(keep, byte(r)) >= 0:
			dst = append(dst, text[:n]...)
		case r < ' ':
			dst = utf8.AppendRune(dst, '␀'+r)
		case r == 0x7f:
			dst = append(dst, "␡"...)
		default:
			dst = fmt.Appendf(dst, "<U+%04X>", r)
		}
		text = text[n:]
	}
	return dst
}

// oneLine makes an error that quotes its input safe to print, in one line.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	shown := string(appendVisible(nil, []byte(text), ""))
	if shown == text {
		return err
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return &usageError{err: errors.New(shown), hint: usage.hint}
	}
	return errors.New(shown)
}
