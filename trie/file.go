package trie

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxFileBytes is how long the file of a trie may be for [Load] and [Read].
const MaxFileBytes = 1 << 30

var errTooLong = fmt.Errorf("expected at most %d GiB", MaxFileBytes>>30)

// Load reads the trie in a file, as [Read] does. Only a regular file is opened: to read from
// a pipe could take forever. Its errors name the file; one that is not there is
// [os.ErrNotExist].
func Load(path string) (*Trie, error) {
	switch info, err := os.Stat(path); {
	case err != nil: // which opening it says as well
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: expected a regular file", path)
	case info.Size() > MaxFileBytes:
		return nil, fmt.Errorf("%s: %w", path, errTooLong)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Read reads a trie's file to its end, as [Parse] does, but without holding it in memory. A
// file of more than [MaxFileBytes] is an error.
func Read(r io.Reader) (*Trie, error) {
	return parse(&fileLimit{r: r, left: MaxFileBytes})
}

// fileLimit keeps a file that does not end from being read forever.
type fileLimit struct {
	r    io.Reader
	left int64
}

func (l *fileLimit) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// Save writes the trie to a file in the canonical form of [Trie.AppendJSON]. Whoever reads
// the file at the same time, or after a crash, sees the old content or the new, never a
// part. A file that was there keeps its permissions; a new one gets 0644.
func (t *Trie) Save(path string) (err error) {
	mode := os.FileMode(0o644)
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // the first error says more
			err = fmt.Errorf("save %s: %w", path, err)
		}
	}()
	_, err = tmp.Write(t.AppendJSON(nil))
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync() // not all file systems can; the file itself is safe
		_ = d.Close()
	}
	return nil
}
