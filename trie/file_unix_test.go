//go:build unix

package trie

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestLoadNotAFile: what is no regular file is not even opened, for a pipe has no end before
// somebody writes to it.
func TestLoadNotAFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{dir, pipe, "/dev/zero"} {
		if _, err := Load(path); err == nil || err.Error() != path+": expected a regular file" {
			t.Errorf("%s: error = %v", path, err)
		}
	}
}
