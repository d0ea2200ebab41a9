//go:build unix

package main

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

// arena is memory that the garbage collector neither counts nor looks into. What lies
// there may point into the same arena, and nowhere else. The zero value is empty.
type arena struct{ parts [][]byte }

// outside returns n zero values in an arena, which are gone when it is freed.
func outside[T any](a *arena, n int) ([]T, error) {
	var zero T
	if n == 0 {
		return nil, nil
	}
	size := n * int(unsafe.Sizeof(zero))
	part, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	a.parts = append(a.parts, part)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(part))), n), nil
}

// free gives the memory of everything in the arena back.
func (a *arena) free() error {
	var errs []error
	for _, p := range a.parts {
		errs = append(errs, syscall.Munmap(p))
	}
	a.parts = nil
	return errors.Join(errs...)
}
