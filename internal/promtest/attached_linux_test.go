package promtest

import "syscall"

// attached has a process end with the one that started it, even if that is killed.
func attached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
