//go:build !linux

package vllmtest

import "syscall"

// attached makes a process the first of a group.
func attached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
