package hintproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// flushInterval is how long a span stays in memory at most.
	flushInterval = time.Second
	// recordBuffer is how many bytes of spans stay there at most.
	recordBuffer = 64 << 10
	// maxTorn is the longest part of a span that is looked for at the end of a file.
	maxTorn = 1 << 20
)

// spanStart is how every line begins.
var spanStart = []byte(`{"run_id":`)

// spanFile is a file that lines are appended to. After an error it takes no more. It is
// safe for concurrent use.
type spanFile struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	file  io.WriteCloser
	w     *bufio.Writer
	spans uint64
	err   error
	shut  bool
}

// openSpanFile opens a file, or makes it. A line at its end that somebody was writing when
// it died is cut off.
func openSpanFile(path string, log *slog.Logger) (*spanFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := mend(f); err != nil {
		_ = f.Close() // the first error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return newSpanFile(path, f, log), nil
}

func newSpanFile(path string, f io.WriteCloser, log *slog.Logger) *spanFile {
	return &spanFile{path: path, log: log, file: f, w: bufio.NewWriterSize(f, recordBuffer)}
}

// mend makes sure that a line can follow what is in a file.
func mend(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	tail := make([]byte, min(info.Size(), maxTorn))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	torn := tail[end:]
	if len(torn) == 0 {
		return nil
	}
	longer := end == 0 && int64(len(tail)) < info.Size() // it begins further ahead
	if n := min(len(torn), len(spanStart)); longer || !bytes.Equal(torn[:n], spanStart[:n]) {
		return errors.New("expected a file of spans, got one whose last line is something else and has no end")
	}
	return f.Truncate(info.Size() - int64(len(torn)))
}

// Write takes one line.
func (s *spanFile) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w.Available() < len(line) {
		s.flushLocked() // so that a file ends with a whole line
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case s.shut:
		return 0, os.ErrClosed
	}
	s.spans++
	n, err := s.w.Write(line)
	if err != nil {
		s.failLocked(err)
	}
	return n, err
}

// run writes what was taken in to the file, from time to time until ctx ends.
func (s *spanFile) run(ctx context.Context) {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.mu.Lock()
			s.flushLocked()
			s.mu.Unlock()
		}
	}
}

func (s *spanFile) flushLocked() {
	if s.err == nil && !s.shut {
		if err := s.w.Flush(); err != nil {
			s.failLocked(err)
		}
	}
}

func (s *spanFile) failLocked(err error) {
	s.err = err
	s.log.LogAttrs(context.Background(), slog.LevelError, "the recording has ended", slog.String("path", s.path), slog.Any("error", err))
}

// Close writes what is left and closes the file. It returns the error that ended the
// recording, if one did.
func (s *spanFile) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return s.err
	}
	s.flushLocked()
	s.shut = true
	if err := s.file.Close(); s.err == nil {
		s.err = err
	}
	return s.err
}

func (s *spanFile) stats() *RecordStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &RecordStats{Path: s.path, Spans: s.spans}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}
