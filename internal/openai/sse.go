package openai

import (
	"bytes"
	"errors"
	"io"
)

// Done is the event that ends a stream.
var Done = []byte("data: [DONE]\n\n")

// ErrEventTooLarge is returned by [Scanner.Fill] when one event does not fit
// into the scanner's limit.
var ErrEventTooLarge = errors.New("sse: event larger than the limit")

// AppendData appends payload framed as one data event. Each line of the payload
// becomes a data line of its own.
func AppendData(dst, payload []byte) []byte {
	dst = appendLines(dst, "data: ", payload, "\n")
	return append(dst, '\n')
}

// appendLines appends each line of payload between head and tail.
func appendLines(dst []byte, head string, payload []byte, tail string) []byte {
	for i := lineBreak(payload); i >= 0; i = lineBreak(payload) {
		dst = append(append(append(dst, head...), payload[:i]...), tail...)
		payload = payload[i+breakWidth(payload[i:]):]
	}
	return append(append(append(dst, head...), payload...), tail...)
}

// AppendAnnotation appends an annotation event: the name in the event field and
// the JSON value as a comment. Line breaks in value become spaces, so that a
// value cannot open a field of its own.
func AppendAnnotation(dst []byte, name string, value []byte) []byte {
	dst = append(dst, "event: "...)
	dst = appendOneLine(dst, []byte(name))
	dst = append(dst, "\n: "...)
	dst = appendOneLine(dst, value)
	return append(dst, "\n\n"...)
}

func appendOneLine(dst, s []byte) []byte {
	at := len(dst)
	dst = append(dst, s...)
	for i := at; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

// Event is one server-sent event. Its slices point into the scanner's buffer and
// are valid until the next call of [Scanner.Fill].
type Event struct {
	// Raw is the event as received, its closing blank line included.
	Raw []byte
	// Data is the payload of the data field; several data lines are joined by
	// a line feed. It is nil when the event has no data field.
	Data []byte
	// Name is the event field, empty for ordinary chunks.
	Name []byte
}

// IsDone reports whether e is the [DONE] marker.
func (e *Event) IsDone() bool {
	return len(e.Data) == 6 && string(e.Data) == "[DONE]"
}

// Clone returns a copy of e that does not depend on the scanner's buffer.
func (e *Event) Clone() Event {
	c := Event{Raw: bytes.Clone(e.Raw)}
	c.parse()
	return c
}

// AppendWith appends e with another payload, which stands where the first data line
// was. Other data lines go; comments, other fields and the way lines end stay.
func (e *Event) AppendWith(dst, payload []byte) []byte {
	placed := false
	for b := e.Raw; len(b) > 0; {
		n := lineBreak(b)
		end := n + breakWidth(b[n:])
		name, value := field(b[:n])
		switch {
		case name != "data":
			dst = append(dst, b[:end]...)
		case !placed:
			head := string(b[:n-len(value)])
			if head == "data" { // of a line without a colon
				head = "data:"
			}
			dst = appendLines(dst, head, payload, string(b[n:end]))
			placed = true
		}
		b = b[end:]
	}
	return dst
}

// Scanner cuts a byte stream into server-sent events. Lines may end in LF, CRLF
// or CR, and a byte order mark at the start of the stream is dropped. The zero
// value is not ready; use [NewScanner]. Not safe for concurrent use.
//
//	for err == nil {
//		err = s.Fill(r)
//		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
//			…
//		}
//	}
//
// followed by one [Scanner.Last] when the error is io.EOF.
type Scanner struct {
	buf        []byte
	start, end int // unread bytes are buf[start:end]
	max        int
	err        error // of the reader, to be returned by the next Fill

	// Where the search for the end of the next event stands, relative to start.
	seen    int  // bytes already searched
	line    int  // start of the line that seen is in
	inEvent bool // a line before that was not blank

	begun bool // the byte order mark was looked for
}

// NewScanner returns a scanner that starts on buf, which it owns from now on,
// and grows it up to max bytes when one event is larger.
func NewScanner(buf []byte, max int) *Scanner {
	return &Scanner{buf: buf[:cap(buf)], max: max}
}

// Buffer returns the scanner's buffer, so that the caller can keep it for the
// next stream. The scanner must not be used afterwards.
func (s *Scanner) Buffer() []byte { return s.buf }

// Fill reads from r. Slices of events returned earlier become invalid, and all
// complete events must have been taken with Next before. It returns nil after at
// least one byte, else the reader's error, [ErrEventTooLarge], or
// io.ErrNoProgress from a reader that neither reads nor fails.
func (s *Scanner) Fill(r io.Reader) error {
	if s.err != nil {
		return s.err
	}
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	if s.end == len(s.buf) {
		if s.end >= s.max {
			return ErrEventTooLarge
		}
		grown := make([]byte, min(max(2*len(s.buf), 512), s.max))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	for range 100 {
		n, err := r.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// Next returns the next complete event, or false when more bytes are needed. A
// blank line that closes nothing belongs to the event after it.
func (s *Scanner) Next() (Event, bool) {
	if !s.begun && !s.begin() {
		return Event{}, false
	}
	raw := s.buf[s.start:s.end]
	for {
		n := lineBreak(raw[s.seen:])
		if n < 0 {
			s.seen = len(raw)
			return Event{}, false
		}
		n += s.seen
		if raw[n] == '\r' && n+1 == len(raw) { // an LF may follow
			s.seen = n
			return Event{}, false
		}
		blank := n == s.line
		n += breakWidth(raw[n:])
		if blank && s.inEvent {
			s.advance(n)
			ev := Event{Raw: raw[:n:n]}
			ev.parse()
			return ev, true
		}
		s.seen, s.line = n, n
		s.inEvent = s.inEvent || !blank
	}
}

// Last returns what is left after the reader ended as one more event, its
// missing line ends added, or false when nothing but blank lines is left.
func (s *Scanner) Last() (Event, bool) {
	rest := bytes.Trim(s.buf[s.start:s.end], "\r\n")
	s.advance(s.end - s.start)
	if len(rest) == 0 {
		return Event{}, false
	}
	ev := Event{Raw: append(bytes.Clone(rest), "\n\n"...)}
	ev.parse()
	return ev, true
}

// advance drops the first n unread bytes.
func (s *Scanner) advance(n int) {
	s.start += n
	s.seen, s.line, s.inEvent = 0, 0, false
}

// begin drops the byte order mark from the start of the stream. It returns false
// while there are too few bytes to tell.
func (s *Scanner) begin() bool {
	const mark = "\xef\xbb\xbf"
	raw := s.buf[s.start:s.end]
	n := min(len(raw), len(mark))
	if string(raw[:n]) != mark[:n] {
		s.begun = true
	} else if n == len(mark) {
		s.begun = true
		s.start += n
	}
	return s.begun
}

// lineBreak returns the index of the first CR or LF in b, or -1.
func lineBreak(b []byte) int {
	// The window bounds what a search for one of them costs where only the
	// other is used.
	const window = 4 << 10
	for base := 0; base < len(b); base += window {
		w := b[base:min(base+window, len(b))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return base + cr
		}
		if lf >= 0 {
			return base + lf
		}
	}
	return -1
}

// breakWidth returns the length of the line break at the start of b.
func breakWidth(b []byte) int {
	if len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		return 2
	}
	return 1
}

func (e *Event) parse() {
	lines := 0
	for b := e.Raw; len(b) > 0; {
		n := lineBreak(b)
		name, value := field(b[:n])
		b = b[n+breakWidth(b[n:]):]
		switch name {
		case "data":
			switch lines {
			case 0:
				e.Data = value
			case 1:
				e.Data = append(append(append([]byte(nil), e.Data...), '\n'), value...)
			default:
				e.Data = append(append(e.Data, '\n'), value...)
			}
			lines++
		case "event":
			e.Name = value
		}
	}
}

// field splits a line into its field name and value. Names other than data and
// event do not matter here and come back empty, as comments do.
func field(line []byte) (name string, value []byte) {
	switch {
	case bytes.HasPrefix(line, []byte("data:")):
		name, value = "data", line[5:]
	case bytes.HasPrefix(line, []byte("event:")):
		name, value = "event", line[6:]
	case string(line) == "data":
		return "data", line[4:]
	default:
		return "", nil
	}
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return name, value
}
