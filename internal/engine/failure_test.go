package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestFailureOf(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	idle, stop := context.WithCancelCause(t.Context())
	stop(ErrIdle)
	connect := fmt.Errorf("attempt: %w", &OpenError{Failure: FailConnect, Err: errors.New("refused")})
	rows := []struct {
		name string
		ctx  context.Context
		err  error
		want Failure
	}{
		{"an open error keeps its kind", t.Context(), connect, FailConnect},
		{"a client that left outranks it", cancelled, connect, FailCancelled},
		{"a silent engine is a time-out", idle, connect, FailTimeout},
		{"anything else is a broken connection", t.Context(), errors.New("EOF"), FailBroken},
	}
	for _, row := range rows {
		if got := FailureOf(row.ctx, row.err); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}
