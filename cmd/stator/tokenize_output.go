package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize/hf"
)

// tokenOutput prints tokens in one of several forms. Each method prints all there
// is to print.
type tokenOutput struct {
	w        *bufio.Writer
	terminal bool // w is one
	buf      []byte
}

// spill writes what has gathered in buf, once that is worth it. An error shows
// when the writer is flushed.
func (o *tokenOutput) spill() {
	if len(o.buf) >= 1<<12 {
		o.w.Write(o.buf)
		o.buf = o.buf[:0]
	}
}

// finish writes what is left.
func (o *tokenOutput) finish() error {
	o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return o.w.Flush()
}

// count prints the number of tokens.
func (o *tokenOutput) count(t tokens) error {
	o.buf = append(strconv.AppendInt(o.buf, int64(len(t.ids)), 10), '\n')
	return o.finish()
}

// idArray prints the ids as a JSON array.
func (o *tokenOutput) idArray(t tokens) error {
	o.appendIDs(t.ids)
	o.buf = append(o.buf, '\n')
	return o.finish()
}

func (o *tokenOutput) appendIDs(ids []uint32) {
	o.buf = append(o.buf, '[')
	for i, id := range ids {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = strconv.AppendUint(o.buf, uint64(id), 10)
		o.spill()
	}
	o.buf = append(o.buf, ']')
}

// table prints a line for each token.
func (o *tokenOutput) table(tok *hf.Tokenizer, t tokens) error {
	for _, id := range t.ids {
		piece, _, _ := tok.Token(id)
		o.buf = strconv.AppendUint(o.buf, uint64(id), 10)
		o.buf = append(o.buf, '\t')
		o.buf = strconv.AppendQuote(o.buf, string(piece))
		o.buf = append(o.buf, '\n')
		o.spill()
	}
	return o.finish()
}

// object prints everything as one JSON object. Bytes of a piece that are not UTF-8,
// because the character that they belong to has several tokens, are written <0xE2>.
func (o *tokenOutput) object(name string, tok *hf.Tokenizer, t tokens) error {
	o.buf = append(o.buf, `{"tokenizer":`...)
	o.buf = appendJSON(o.buf, []byte(name))
	o.buf = append(o.buf, `,"fingerprint":`...)
	o.buf = appendJSON(o.buf, []byte(tok.Fingerprint()))
	o.buf = append(o.buf, `,"count":`...)
	o.buf = strconv.AppendInt(o.buf, int64(len(t.ids)), 10)
	o.buf = append(o.buf, `,"ids":`...)
	o.appendIDs(t.ids)
	o.buf = append(o.buf, `,"pieces":[`...)
	var specials []uint32
	for i, id := range t.ids {
		piece, special, _ := tok.Token(id)
		if special {
			specials = append(specials, uint32(i))
		}
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = appendJSON(o.buf, spellBytes(piece))
		o.spill()
	}
	o.buf = append(o.buf, `],"special":`...)
	o.appendIDs(specials)
	o.buf = append(o.buf, `,"text":`...)
	o.buf = appendJSON(o.buf, t.text)
	o.buf = append(o.buf, '}', '\n')
	return o.finish()
}

// plainText prints text as it is, so that it can be piped on. A terminal gets its
// control characters in a visible form, and a line end.
func (o *tokenOutput) plainText(text []byte) error {
	if !o.terminal {
		o.w.Write(text)
		return o.finish()
	}
	o.buf = appendVisible(o.buf, text, "\n\t")
	if !bytes.HasSuffix(text, []byte("\n")) {
		o.buf = append(o.buf, '\n')
	}
	return o.finish()
}

// painted prints the text with each token on another background, and a line that
// counts what there is. A character that has several tokens appears with the last
// of them.
func (o *tokenOutput) painted(tok *hf.Tokenizer, t tokens) error {
	p := painter{w: o.w}
	s := tok.NewStream(false /* skipSpecial */)
	var text []byte
	last := false
	for _, id := range t.ids {
		_, last, _ = tok.Token(id)
		text = s.Push(text[:0], id)
		p.token(text, last)
	}
	p.token(s.Flush(text[:0]), last)
	p.end()
	o.buf = appendSummary(o.buf, t)
	return o.finish()
}

// appendSummary appends the line that counts tokens, characters and bytes.
func appendSummary(dst []byte, t tokens) []byte {
	number := func(n int, what string) string {
		if n != 1 {
			what += "s"
		}
		return strconv.Itoa(n) + " " + what
	}
	dst = fmt.Appendf(dst, "%s, %s, %s", number(len(t.ids), "token"), number(utf8.RuneCount(t.text), "character"), number(len(t.text), "byte"))
	if len(t.ids) > 0 {
		dst = fmt.Appendf(dst, ", %.2f bytes per token", float64(len(t.text))/float64(len(t.ids)))
	}
	return append(dst, '\n')
}

// spellBytes returns text with each byte that is not UTF-8 as <0xE2>.
func spellBytes(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, 6*len(text))
	for len(text) > 0 {
		n := validPrefix(text)
		out = append(out, text[:n]...)
		if text = text[n:]; len(text) > 0 {
			out = fmt.Appendf(out, "<0x%02X>", text[0])
			text = text[1:]
		}
	}
	return out
}

// appendJSON appends text as a JSON string without any character that is unseen.
func appendJSON(dst, text []byte) []byte {
	at := len(dst)
	dst = openai.AppendString(dst, text)
	if !bytes.ContainsFunc(dst[at:], unseen) {
		return dst
	}
	quoted := bytes.Clone(dst[at:])
	dst = dst[:at]
	for len(quoted) > 0 {
		r, n := utf8.DecodeRune(quoted)
		switch {
		case !unseen(r):
			dst = append(dst, quoted[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		quoted = quoted[n:]
	}
	return dst
}
