package trie

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Load reads the trie in a file. Its errors name the file; one that is not there is
// [os.ErrNotExist].
func Load(path string) (*Trie, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
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
