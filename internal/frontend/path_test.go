package frontend

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
)

// watched records the functions of this module on the stack when a request is
// about to reach its engine.
type watched struct {
	engine.Engine
	stack *[]string
}

func (w watched) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	*w.stack = nil
	for {
		f, more := frames.Next()
		name, ours := strings.CutPrefix(f.Function, "github.com/stator-ai/stator/internal/")
		if ours && !strings.HasSuffix(f.File, "_test.go") {
			*w.stack = append([]string{name}, *w.stack...)
		}
		if !more {
			break
		}
	}
	return w.Engine.Open(ctx, t, r)
}

// TestPathOfOneRequest pins the functions between the server's call and the
// engine's Open: all on one goroutine, without a hand-off. ARCHITECTURE.md lists
// them.
func TestPathOfOneRequest(t *testing.T) {
	var stack []string
	rg := newRig(t, rigConfig{wrap: func(e engine.Engine) engine.Engine { return watched{e, &stack} }})
	rg.post(t, "/v1/chat/completions", hello)
	want := []string{
		"frontend.(*Server).ServeHTTP",
		"frontend.(*Server).dispatch",
		"frontend.(*Server).generate",
		"frontend.(*call).serve",
		"frontend.(*call).attempt",
		// and then openaihttp.(*Engine).Open and send
	}
	if diff := cmp.Diff(want, stack); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}
