package policyeval

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/trace"
)

// Read takes all rows of a trace into the log: plain, or compressed with gzip or zstd. Rows
// that cannot be used are counted; see [Log.Skipped]. So is one that was cut off, as the
// last of a trace that still grows or the last before a crash. What is no row is a
// *[trace.LineError].
func (l *Log) Read(r io.Reader) error {
	plain, err := decompress(r)
	if err != nil {
		return err
	}
	defer plain.Close()
	in := bufio.NewReaderSize(plain, 256<<10)
	for number := 1; ; number++ {
		text, long, err := readLine(in)
		if err != nil && err != io.EOF {
			if errors.Is(err, io.ErrUnexpectedEOF) && number > 1 { // a compressed trace that still grows
				l.skipped[CutOff]++
				return nil
			}
			return &trace.LineError{Line: number, Err: err}
		}
		if text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))); long {
			l.skipped[TooLong]++
		} else if len(text) > 0 {
			if fault := l.line(text, err == io.EOF); fault != nil {
				return &trace.LineError{Line: number, Err: fault}
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// rowStart is how rows begin.
var rowStart = []byte(`{"schema":"` + trace.Schema + `",`)

// line takes one line in; last is set for one without an end.
func (l *Log) line(text []byte, last bool) error {
	var row struct {
		trace.Row
		// What is long, and of no use here.
		BlockHashes ignored `json:"block_hashes"`
		Text        ignored `json:"text"`
	}
	err := json.Unmarshal(text, &row)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		next := bytes.LastIndex(text, rowStart)
		switch {
		case next > 0: // a crash cut a row off, and another began right after it
			l.skipped[CutOff]++
			return l.line(text[next:], last)
		case last && bytes.HasPrefix(text, rowStart[:min(len(text), len(rowStart))]):
			l.skipped[CutOff]++
			return nil
		}
	}
	if err != nil {
		return err
	}
	if row.Schema != trace.Schema {
		return fmt.Errorf("schema: expected %s, got %.80q: only what stator serve records holds decisions", trace.Schema, row.Schema)
	}
	l.Add(&row.Row)
	return nil
}

// ignored is a member that is not read.
type ignored struct{}

// UnmarshalJSON does nothing.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

// readLine returns the next line, until the next call, and whether it is longer than a row
// may be and only its beginning. The last one comes with io.EOF.
func readLine(in *bufio.Reader) (text []byte, long bool, err error) {
	text, err = in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return text, false, err
	}
	text = bytes.Clone(text)
	for err == bufio.ErrBufferFull {
		var part []byte
		part, err = in.ReadSlice('\n')
		if len(text)+len(part) > trace.MaxLine {
			long = true
			continue
		}
		text = append(text, part...)
	}
	return text, long, err
}

// decompress returns r, decompressed if it begins like a compressed file.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReader(r)
	head, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}): // a frame, or one to skip
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}
