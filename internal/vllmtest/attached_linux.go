package vllmtest

import "syscall"

// attached makes a process the first of a group, and has it end with the one that
// started it, even if that is killed.
func attached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
