package hintproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// flushInterval is how long a span waits in memory at most, as long as the file takes
	// them.
	flushInterval = time.Second
	// flushBytes is how many bytes of spans are written without waiting for that.
	flushBytes = 64 << 10
	// maxWaiting is how many bytes of spans wait at most beside those being written. What
	// comes then is dropped.
	maxWaiting = 4 << 20
	// maxSpan is the longest span that is taken, and so the longest part of one that is
	// looked for at the end of a file.
	maxSpan = 1 << 20
	// maxRetry is how long the file is left alone at most after it could not be written.
	maxRetry = 30 * time.Second
	// closeTimeout is how long the end of the proxy waits for a file.
	closeTimeout = 3 * time.Second
)

// spanStart is how every line begins.
var spanStart = []byte(`{"run_id":`)

// file is what is needed of an [os.File].
type file interface {
	io.WriteCloser
	io.ReaderAt
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
}

// spanFile is a file that lines are appended to, by a goroutine of its own: who has a line
// never waits for the disk. A file that cannot be written is tried again from time to time.
// It is safe for concurrent use.
type spanFile struct {
	path string
	log  *slog.Logger
	full chan struct{} // of size one: there is enough to write
	stop chan struct{}
	done chan struct{} // the goroutine has ended

	// Of the goroutine.
	file  file
	batch []byte // the whole lines that are next
	torn  bool   // the file may end within a line

	closing sync.Once
	result  error // of Close

	mu      sync.Mutex // never held while the file is used
	waiting []byte     // the whole lines after those
	lines   uint64     // in both
	written uint64
	dropped uint64
	missed  uint64 // dropped for want of room since the file was last written to
	err     error  // why it cannot be written at present
	shut    bool
}

// openSpanFile opens a file, or makes it. A span at its end that lacks only the newline gets
// it. A part of one, which somebody was writing when it died, is cut off.
func openSpanFile(path string, log *slog.Logger) (*spanFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := mend(path, f, log); err != nil {
		_ = f.Close() // the first error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return startSpanFile(path, f, log), nil
}

func startSpanFile(path string, f file, log *slog.Logger) *spanFile {
	s := &spanFile{
		path: path, log: log, file: f,
		full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go s.run()
	return s
}

// mend makes sure that a line can follow what others left in a file.
func mend(path string, f file, log *slog.Logger) error {
	at, torn, err := lastLine(f)
	if err != nil || len(torn) == 0 {
		return err
	}
	if json.Valid(torn) {
		_, err := f.Write([]byte{'\n'})
		return err
	}
	if err := f.Truncate(at); err != nil {
		return err
	}
	log.LogAttrs(context.Background(), slog.LevelWarn, "the last span of the recording was not whole and is cut off",
		slog.String("path", path), slog.Int("bytes", len(torn)))
	return nil
}

// cutTorn takes back the part of a line that a failed write left in a file.
func cutTorn(f file) error {
	at, torn, err := lastLine(f)
	if err != nil || len(torn) == 0 {
		return err
	}
	return f.Truncate(at)
}

// lastLine returns where the last line of a file begins, and the line, if it has no newline:
// a span or the beginning of one. Anything else is an error. What is no regular file cannot
// be looked at, and has none.
func lastLine(f file) (at int64, torn []byte, err error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return 0, nil, err
	}
	tail := make([]byte, min(info.Size(), maxSpan))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return 0, nil, err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	torn = tail[end:]
	if len(torn) == 0 {
		return 0, nil, nil
	}
	longer := end == 0 && int64(len(tail)) < info.Size() // it begins further ahead
	if n := min(len(torn), len(spanStart)); longer || !bytes.Equal(torn[:n], spanStart[:n]) {
		return 0, nil, errors.New("expected a file of spans, got one whose last line is something else and has no end")
	}
	return info.Size() - int64(len(torn)), torn, nil
}

// Write takes one line, or drops it where there is no room. It never waits and has no
// errors: a recorder that saw one would never write again.
func (s *spanFile) Write(line []byte) (int, error) {
	s.mu.Lock()
	room := len(s.waiting)+len(line) <= maxWaiting
	tell := false
	switch {
	case s.shut || len(line) > maxSpan:
		s.dropped++
	case room:
		s.waiting = append(s.waiting, line...)
		s.lines++
	default:
		tell = s.missed == 0 && s.err == nil // which was told
		s.dropped++
		s.missed++
	}
	full := len(s.waiting) >= flushBytes
	s.mu.Unlock()
	if full {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
	if tell {
		s.log.LogAttrs(context.Background(), slog.LevelError, "the recording stands still, and spans are dropped", slog.String("path", s.path))
	}
	return len(line), nil
}

// run writes what was taken in to the file, until Close.
func (s *spanFile) run() {
	defer close(s.done)
	timer := time.NewTimer(flushInterval)
	defer timer.Stop()
	for failures := 0; ; {
		full := s.full
		if failures > 0 {
			full = nil // the file has its rest
		}
		select {
		case <-s.stop:
			err := s.flush()
			if errClose := s.file.Close(); err == nil && errClose != nil {
				s.fail(errClose)
			}
			return
		case <-timer.C:
		case <-full:
		}
		if s.flush() == nil {
			failures = 0
		} else {
			failures++
		}
		timer.Reset(pause(failures))
	}
}

// pause returns how long to wait for the next attempt after so many that failed.
func pause(failures int) time.Duration {
	return min(flushInterval<<min(max(failures-1, 0), 10), maxRetry)
}

// flush writes until nothing waits.
func (s *spanFile) flush() error {
	for {
		if len(s.batch) == 0 {
			s.mu.Lock()
			s.batch, s.waiting = s.waiting, nil
			s.mu.Unlock()
		}
		if len(s.batch) == 0 {
			return nil
		}
		if s.torn {
			if err := cutTorn(s.file); err != nil { // it is in the batch
				return s.fail(fmt.Errorf("%s: %w", s.path, err))
			}
			s.torn = false
		}
		n, err := s.file.Write(s.batch)
		whole := bytes.LastIndexByte(s.batch[:n], '\n') + 1
		lines := bytes.Count(s.batch[:whole], []byte{'\n'})
		s.batch = s.batch[whole:]
		s.mu.Lock()
		s.written += uint64(lines)
		s.lines -= uint64(lines)
		s.mu.Unlock()
		if err != nil {
			s.torn = true
			return s.fail(err)
		}
		s.goOn()
	}
}

// fail notes that the file cannot be written, and returns why.
func (s *spanFile) fail(err error) error {
	s.mu.Lock()
	known := s.err != nil || s.shut // then Close tells
	s.err = err
	s.mu.Unlock()
	if !known {
		s.log.LogAttrs(context.Background(), slog.LevelError, "the recording cannot be written and will be tried again",
			slog.String("path", s.path), slog.Any("error", err))
	}
	return err
}

// goOn notes that the file was written.
func (s *spanFile) goOn() {
	s.mu.Lock()
	failed, missed := s.err != nil, s.missed
	s.err, s.missed = nil, 0
	s.mu.Unlock()
	if failed || missed > 0 {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "the recording goes on", slog.String("path", s.path), slog.Uint64("dropped", missed))
	}
}

// Close writes what is left and closes the file, but does not wait for it longer than
// closeTimeout. The error says what is missing from the recording.
func (s *spanFile) Close() error {
	s.closing.Do(func() { s.result = s.close() })
	return s.result
}

func (s *spanFile) close() error {
	s.mu.Lock()
	s.shut = true
	s.mu.Unlock()
	close(s.stop)
	ended := within(closeTimeout, s.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := s.dropped + s.lines
	switch {
	case !ended:
		return fmt.Errorf("%s: could not be written within %s; missing spans: up to %d", s.path, closeTimeout, missing)
	case missing == 0:
		return s.err
	case s.err != nil:
		return fmt.Errorf("missing spans: %d: %w", missing, s.err)
	}
	return fmt.Errorf("%s: missing spans: %d", s.path, missing)
}

// within reports whether something is done before the time is up.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (s *spanFile) stats() *RecordStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &RecordStats{Path: s.path, Written: s.written, Waiting: s.lines, Dropped: s.dropped}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}
