package hintproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/hints"
)

const (
	// maxHeld is how many bytes of bodies are held at a time so that hints can be added.
	maxHeld = 512 << 20
	// maxPause is how long nothing may come of the body of a call of a model that has not
	// ended.
	maxPause = time.Minute
)

// budget is a number of bytes that are in use, of at most maxHeld. It is safe for concurrent
// use.
type budget struct{ used atomic.Int64 }

// take reports whether n more bytes may be used.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > maxHeld {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// callBody is the body of a call of a model. It ends with an error when it pauses for too
// long.
type callBody struct {
	io.ReadCloser
	conn    *http.ResponseController
	budget  *budget
	crowded bool         // it would get hints, but there is no memory for it
	room    atomic.Int64 // what is taken from the budget
	read    int64
	stalled atomic.Bool // it paused for too long

	mu    sync.Mutex
	ended bool // the connection is no longer the call's
}

func newCallBody(w http.ResponseWriter, r *http.Request, b *budget) *callBody {
	return &callBody{ReadCloser: r.Body, conn: http.NewResponseController(w), budget: b}
}

// hold takes what a body of a length needs to be in memory until the call ends, and reports
// whether the budget had as much. A body of unknown length, below 0, needs as much as the
// longest until it is there.
func (b *callBody) hold(length int64) bool {
	if length < 0 {
		length = hints.DefaultMaxBody
	}
	if b.crowded = !b.budget.take(length); b.crowded {
		return false
	}
	b.room.Store(length)
	return true
}

func (b *callBody) Read(p []byte) (int, error) {
	b.setDeadline(time.Now().Add(maxPause))
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case err == nil:
		b.setDeadline(time.Time{})
	case err == io.EOF:
		b.setDeadline(time.Time{})
		if room := b.room.Load(); room > b.read && b.room.CompareAndSwap(room, b.read) {
			b.budget.give(room - b.read)
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.stalled.Store(true) // the deadline stays, so that nobody waits for the rest
	}
	return n, err
}

// setDeadline sets that of the connection. Where this is not supported there is none.
func (b *callBody) setDeadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.conn.SetReadDeadline(at)
	}
}

// end gives back what was taken. Whoever still reads leaves the connection alone.
func (b *callBody) end() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.budget.give(b.room.Swap(0))
}

type callBodyKey struct{}

// callBodyOf returns the body of the call of a model that a request is, nil if it is none.
func callBodyOf(ctx context.Context) *callBody {
	b, _ := ctx.Value(callBodyKey{}).(*callBody)
	return b
}

// isCall reports whether a request is a call of a model that there is memory for.
func isCall(r *http.Request) bool {
	b := callBodyOf(r.Context())
	return b != nil && !b.crowded
}
