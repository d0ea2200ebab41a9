//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile waits for the lock at path, which Python's library takes in the same
// way, and returns a function that gives it back. The lock saves work: whoever
// waits finds the file there. Nothing breaks without it, so where a file system
// has no locks or cannot be written to, nobody waits.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return func() {}, nil
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return func() { f.Close() }, nil
		}
		if err := sleep(ctx, wait); err != nil {
			f.Close()
			return nil, err
		}
	}
}

// columns returns the width of the terminal that f is, or 0 if it is none.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
