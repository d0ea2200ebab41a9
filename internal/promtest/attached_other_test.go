//go:build !linux

package promtest

import "syscall"

// attached would have a process end with the one that started it, which not every
// system can do.
func attached() *syscall.SysProcAttr { return nil }
