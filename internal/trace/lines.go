package trace

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader cuts a file into lines and skips empty ones.
type lineReader struct {
	in     *bufio.Reader
	buf    []byte
	text   []byte // until next, without spaces around it
	number int
	most   int   // bytes of a line
	long   bool  // it is above that; the text is its beginning
	cut    bool  // it does not end in a line feed
	err    error // why there is no next line; io.EOF at the end of the file
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, min(most, 64<<10)), most: most}
}

func (l *lineReader) next() bool {
	for l.err == nil {
		l.number++
		l.read()
		l.cut = l.err != nil
		if l.cut && l.err != io.EOF {
			return false
		}
		l.text = bytes.TrimSpace(bytes.TrimPrefix(l.text, []byte("\ufeff")))
		if len(l.text) > 0 || l.long {
			return true
		}
	}
	return false
}

// read reads a line into text, or the first bytes of it.
func (l *lineReader) read() {
	l.long = false
	l.text, l.err = l.in.ReadSlice('\n')
	if l.err != bufio.ErrBufferFull {
		return
	}
	l.buf = append(l.buf[:0], l.text...)
	for l.err == bufio.ErrBufferFull {
		var part []byte
		part, l.err = l.in.ReadSlice('\n')
		if room := l.most - len(l.buf); len(part) > room {
			part, l.long = part[:room], true
		}
		l.buf = append(l.buf, part...)
	}
	l.text = l.buf
}

// fault says where an error is.
func (l *lineReader) fault(err error) error {
	var m *memberError
	if errors.As(err, &m) {
		return &LineError{Line: l.number, Member: m.member, Err: m.err}
	}
	return &LineError{Line: l.number, Err: err}
}
