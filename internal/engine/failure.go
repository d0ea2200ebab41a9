package engine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Failure says how far a request came before it failed.
type Failure uint8

// The failures of Open and of reading a response.
const (
	// FailConnect: no connection; nothing was sent.
	FailConnect Failure = iota + 1
	// FailBroken: the connection broke, or what came was not HTTP.
	FailBroken
	// FailTimeout: nothing came for too long.
	FailTimeout
	// FailCancelled: the caller's context ended.
	FailCancelled
	// FailLocal: this machine has no socket or memory left; the engine has no
	// part in it.
	FailLocal
)

func (f Failure) String() string {
	switch f {
	case FailConnect:
		return "connect"
	case FailBroken:
		return "broken"
	case FailTimeout:
		return "timeout"
	case FailCancelled:
		return "cancelled"
	case FailLocal:
		return "local"
	default:
		return "unknown"
	}
}

// OpenError is the error of Open.
type OpenError struct {
	Failure Failure
	Target  Target
	Err     error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("engine %s: %s: %v", e.Target, e.Failure, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

// ErrIdle is the cause of a context cancelled because the engine sent nothing
// for too long.
var ErrIdle = errors.New("engine sent nothing for too long")

// IsLocal reports whether err is a shortage on this machine.
func IsLocal(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// FailureOf tells what kind of failure err is; a cancelled ctx with the cause
// [ErrIdle] is a time-out.
func FailureOf(ctx context.Context, err error) Failure {
	var open *OpenError
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrIdle):
		return FailTimeout
	case ctx.Err() != nil:
		return FailCancelled
	case errors.As(err, &open):
		return open.Failure
	default:
		return FailBroken
	}
}
