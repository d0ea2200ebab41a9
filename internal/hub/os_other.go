//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package hub

import (
	"context"
	"os"
)

// lockFile locks nothing here. Two processes may download the same file twice;
// each renames a file of its own into place.
func lockFile(context.Context, string) (unlock func(), err error) { return func() {}, nil }

// columns returns the width of the terminal that f is, or 0 if it is none.
func columns(f *os.File) int {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0
	}
	return 80
}
