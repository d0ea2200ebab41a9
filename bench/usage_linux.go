package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that a process has used, in user and kernel
// mode together. It reads the process's own CPU clock: nanoseconds from the
// scheduler, all threads included, also those that have ended. The tick counts of
// /proc/PID/stat are far coarser, and the schedstat files forget ended threads.
func cpuTime(pid int) (time.Duration, error) {
	// What clock_getcpuclockid computes: the complement of the pid above three
	// bits that select the scheduler's clock of a whole process.
	const scheduler = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// memory returns the resident set of a process in bytes: rss counts every
// resident page, pss shares the pages that several processes map, so that a
// second process of the same program changes it little.
func memory(pid int) (pss, rss int64, err error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	if pss, err = memoryField(b, "Pss:"); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	if rss, err = memoryField(b, "Rss:"); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return pss, rss, nil
}

// memoryField returns the value in bytes of a line such as "Pss:  123 kB".
func memoryField(smaps []byte, name string) (int64, error) {
	for s := bufio.NewScanner(bytes.NewReader(smaps)); s.Scan(); {
		f := bytes.Fields(s.Bytes())
		if len(f) != 3 || string(f[0]) != name || string(f[2]) != "kB" {
			continue
		}
		n, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s %w", name, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("%s: no such line", name)
}

// fileLimit returns how many files a process may have open.
func fileLimit() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(l.Cur)
}

// kernel names the operating system.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "Linux"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
