package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestCPUTime holds the CPU clock against the kernel's accounts of this process.
func TestCPUTime(t *testing.T) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const slack = 10 * time.Millisecond
	for until := used() + 100*time.Millisecond; used() < until; {
		before, err := cpuTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		between := used()
		after, err := cpuTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if between < before-slack || between > after+slack {
			t.Fatalf("clock reads %v and %v, getrusage in between %v", before, after, between)
		}
	}
}

func TestCPUTimeOfNobody(t *testing.T) {
	if d, err := cpuTime(1 << 28); err == nil {
		t.Errorf("got %v for a process that cannot exist", d)
	}
}

func TestMemory(t *testing.T) {
	before, _, err := memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(b)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	after, rss, err := memory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown < size*9/10 || grown > size*3/2 || rss < size {
		t.Errorf("touched %d bytes: grew by %d to %d resident", size, grown, rss)
	}
}

func TestMemoryField(t *testing.T) {
	const smaps = "00400000-7ffd [rollup]\nRss:                1804 kB\nPss:                 123 kB\nPss_Anon: 1 kB\n"
	if n, err := memoryField([]byte(smaps), "Pss:"); n != 123<<10 || err != nil {
		t.Errorf("Pss: got %d, %v", n, err)
	}
	if n, err := memoryField([]byte(smaps), "Swap:"); err == nil {
		t.Errorf("Swap: got %d", n)
	}
}
