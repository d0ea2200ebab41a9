package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Errors of Place, to be told apart with errors.Is.
var (
	// ErrUnknownModel: no worker ever served that model, or none has for long.
	ErrUnknownModel = errors.New("unknown model")
	// ErrNoWorkers: the model is known, but none of its workers can be reached
	// at the moment.
	ErrNoWorkers = errors.New("no worker available")
	// ErrOverloaded: workers exist, and all of them are above a busy threshold.
	ErrOverloaded = errors.New("all workers are busy")
	// ErrNoneAllowed: the request's allow-list names no worker of the model.
	ErrNoneAllowed = errors.New("no allowed worker serves the model")
	// ErrNoneTainted: no worker of the model has the taints that the request requires.
	ErrNoneTainted = errors.New("no worker has the required taints")
	// ErrPinMissing: direct mode needs a pin and the request has none.
	ErrPinMissing = errors.New("direct mode needs a worker id")
)

// WaitError says that a request waited in the queue for too long.
type WaitError struct{ Wait time.Duration }

func (e *WaitError) Error() string {
	return fmt.Sprintf("all workers are busy: the request waited %s in the queue", e.Wait)
}

// PinError says why a pinned worker cannot be used. A pin is never replaced by
// another worker.
type PinError struct {
	Worker kv.WorkerID
	Rank   *uint32
	Reason PinReason
}

// PinReason is why a pin failed.
type PinReason uint8

// The reasons.
const (
	PinUnknown     PinReason = iota // no such worker serves the model
	PinRankUnknown                  // the worker has no such rank
	PinUnavailable                  // the worker is not reachable at the moment
	PinOverloaded                   // the worker is above a busy threshold
	PinNotAllowed                   // the request's allow-list excludes it
	PinUntainted                    // the worker lacks a taint that the request requires
)

// Temporary reports whether the same pin may work later.
func (e *PinError) Temporary() bool {
	return e.Reason == PinUnavailable || e.Reason == PinOverloaded
}

func (e *PinError) Error() string {
	switch e.Reason {
	case PinRankUnknown:
		return fmt.Sprintf("worker %d has no rank %d", e.Worker, *e.Rank)
	case PinUnavailable:
		return fmt.Sprintf("worker %d is not reachable at the moment", e.Worker)
	case PinOverloaded:
		return fmt.Sprintf("worker %d is busy", e.Worker)
	case PinNotAllowed:
		return fmt.Sprintf("worker %d is not in allowed_worker_ids", e.Worker)
	case PinUntainted:
		return fmt.Sprintf("worker %d lacks a taint of required_taints", e.Worker)
	default:
		return fmt.Sprintf("worker %d does not exist or does not serve this model", e.Worker)
	}
}
