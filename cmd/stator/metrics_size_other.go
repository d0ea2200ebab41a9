//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

// screenSize returns the columns and lines of the terminal that w is; 0 if they are not
// known.
func screenSize(any) (width, height int) { return 0, 0 }
