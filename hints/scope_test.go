package hints

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestX1NoRun(t *testing.T) {
	id := PrefixID(t.Context())
	if !regexp.MustCompile(`^[0-9a-f]{16}-d0$`).MatchString(id) {
		t.Errorf("prefix id %q", id)
	}
	if again := PrefixID(context.Background()); again != id {
		t.Errorf("then %q", again)
	}
}

func TestX2SetAndClear(t *testing.T) {
	ctx := WithRun(t.Context(), "run")
	a := WithPrefixID(ctx, "A")
	b := WithPrefixID(a, "B")
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{{a, "A"}, {b, "B"}, {a, "A"}, {WithPrefixID(b, ""), "run-d0"}} {
		if got := PrefixID(c.ctx); got != c.want {
			t.Errorf("prefix id %q, want %q", got, c.want)
		}
	}
}

func TestX3NestedScopes(t *testing.T) {
	ctx := WithRun(t.Context(), "run")
	var got []string
	scope := func(ctx context.Context, id string, f func(context.Context)) {
		f(WithPrefixID(ctx, id))
	}
	scope(ctx, "outer", func(ctx context.Context) {
		scope(ctx, "inner", func(ctx context.Context) { got = append(got, PrefixID(ctx)) })
		got = append(got, PrefixID(ctx))
	})
	got = append(got, PrefixID(ctx))
	if want := []string{"inner", "outer", "run-d0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestX4PanicInScope(t *testing.T) {
	ctx := WithPrefixID(WithRun(t.Context(), "run"), "outer")
	func() {
		defer func() { recover() }()
		PrefixID(WithLatencySensitivity(WithPrefixID(ctx, "inner"), 9))
		panic("in the scope")
	}()
	if got := PrefixID(ctx); got != "outer" {
		t.Errorf("prefix id %q", got)
	}
	if n, manual := Sensitivity(ctx); n != 2 || manual {
		t.Errorf("sensitivity %d, %t", n, manual)
	}
}

func TestX5OneIDForAll(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet)
	ctx := WithPrefixID(t.Context(), "mine")
	for range 5 {
		if got := post(t, tr, w, ctx, `{}`); !strings.Contains(got, `"prefix_id":"mine"`) {
			t.Errorf("sent %s", got)
		}
	}
}

func TestRunsAndDepths(t *testing.T) {
	ctx := WithRun(t.Context(), "r1")
	planner := EnterFunction(ctx, "planner")
	tool := EnterFunction(planner, "tool")
	left, right := WithBranch(planner, "left"), WithBranch(planner, "right")
	other := WithRun(WithBranch(WithPrefixID(tool, "mine"), "left"), "r2")
	for _, c := range []struct {
		ctx  context.Context
		id   string
		path []string
	}{
		{ctx, "r1-d0", nil},
		{planner, "r1-d1", []string{"planner"}},
		{tool, "r1-d2", []string{"planner", "tool"}},
		{left, "r1-d1/left", []string{"planner"}},
		{right, "r1-d1/right", []string{"planner"}},
		{WithBranch(left, "1"), "r1-d1/left/1", []string{"planner"}},
		{EnterFunction(left, "f"), "r1-d2/left", []string{"planner", "f"}},
		{other, "r2-d0", nil},
	} {
		if got := PrefixID(c.ctx); got != c.id {
			t.Errorf("prefix id %q, want %q", got, c.id)
		}
		if got := FunctionPath(c.ctx); !slices.Equal(got, c.path) {
			t.Errorf("%s: path %q, want %q", c.id, got, c.path)
		}
	}
	if a, b := Run(WithRun(ctx, "")), Run(WithRun(ctx, "")); a == b || len(a) != 36 || Run(ctx) != "r1" {
		t.Errorf("runs %q and %q are not of their own", a, b)
	}
}

// Siblings that enter functions at the same time must not write over each other's paths.
func TestFanOut(t *testing.T) {
	ctx := EnterFunction(EnterFunction(WithRun(t.Context(), "r"), "a"), "b")
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := strings.Repeat("x", i+1)
			inner := EnterFunction(EnterFunction(ctx, name), "leaf")
			if got := FunctionPath(inner); !slices.Equal(got, []string{"a", "b", name, "leaf"}) {
				t.Errorf("path %q in branch %d", got, i)
			}
		})
	}
	wg.Wait()
	if got := FunctionPath(ctx); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("path %q after all", got)
	}
}

func TestS1Default(t *testing.T) {
	if n, manual := Sensitivity(t.Context()); n != 2 || manual {
		t.Errorf("got %d, %t", n, manual)
	}
}

func TestS2Nested(t *testing.T) {
	three := WithLatencySensitivity(t.Context(), 3)
	for _, ctx := range []context.Context{three, WithLatencySensitivity(three, 1)} {
		if n, manual := Sensitivity(ctx); n != 3 || !manual {
			t.Errorf("got %d, %t", n, manual)
		}
	}
	if n, _ := Sensitivity(t.Context()); n != 2 {
		t.Errorf("outside: %d", n)
	}
}

func TestS3Bounds(t *testing.T) {
	for _, c := range []struct {
		push, want int
		manual     bool
	}{{0, 2, false}, {-1, 2, false}, {42, 42, true}, {1, 1, true}} {
		if n, manual := Sensitivity(WithLatencySensitivity(t.Context(), c.push)); n != c.want || manual != c.manual {
			t.Errorf("after %d: %d, %t; want %d, %t", c.push, n, manual, c.want, c.manual)
		}
	}
}

func TestAbsurdInterArrival(t *testing.T) {
	w := new(wire)
	tr := NewTransport(w, quiet)
	contains(t, post(t, tr, w, WithInterArrival(t.Context(), math.MaxInt64), `{}`), `"iat":2147483647`)
}

func TestExpectations(t *testing.T) {
	ctx := WithRun(t.Context(), "r")
	ctx = WithOutputTokens(ctx, 40)
	ctx = WithInterArrival(ctx, 1500*time.Microsecond)
	w := new(wire)
	tr := NewTransport(w, quiet, WithLookup(predicts(3, 25, 2500, 50)))
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{ctx, `"osl":40,"priority":2,"prefix_id":"r-d0","total_requests":26,"iat":2},"cache_control":{"type":"ephemeral","ttl":"1s"}`},
		{WithRemainingCalls(ctx, 3), `"total_requests":5,"iat":2},"cache_control"`},
		{WithRemainingCalls(ctx, 0), `"total_requests":1,"iat":2}}`},
		{WithRemainingCalls(WithRemainingCalls(ctx, 0), -1), `"total_requests":29,"iat":2},"cache_control"`},
		{WithInterArrival(WithOutputTokens(ctx, 0), 0), `"osl":2500,"priority":2,"prefix_id":"r-d0","total_requests":30,"iat":50}`},
	} {
		if got := post(t, tr, w, c.ctx, `{}`); !strings.Contains(got, c.want) {
			t.Errorf("sent %s, want %s in it", got, c.want)
		}
	}
}
