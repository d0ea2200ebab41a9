package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test binary be a baseline, as the program itself can.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == proxyCommand {
		fmt.Fprintln(os.Stderr, serveProxy(os.Args[2], os.Args[3]))
		os.Exit(2)
	}
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-run proxy,nothing", `-run: expected some of proxy, sse, idle, start, sim, replay, tokenize, index, decide, events, usage, request, hints, trie, learn, policy, got "nothing"`},
		{"-seconds 0", "-seconds: expected 0.1 to 60, got 0"},
		{"-seconds NaN", "-seconds: expected 0.1 to 60, got NaN"},
		{"-rounds 0", "-rounds: expected at least 1, got 0"},
		{"proxy", `expected flags only, got "proxy"`},
	} {
		err := run(strings.Fields(test.args), io.Discard, io.Discard)
		if err == nil || err.Error() != test.want {
			t.Errorf("run(%q) = %v, want %s", test.args, err, test.want)
		}
	}
}

func TestStartFailure(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(context.Background(), "baseline", self, proxyCommand, "other", "http://127.0.0.1:1")
	if err == nil {
		p.stop()
		t.Fatal("a proxy of an unknown kind started")
	}
	const want = "baseline: ended before it listened\nproxy: kind: expected reverse, copy, bare, publish or clocked, got \"other\"\n"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestGreeter(t *testing.T) {
	addr := make(chan string, 1)
	g := &greeter{addr: addr}
	for _, part := range []string{"warming up\nlisten", "ing on http://127.0.0.1:4711", "\nlistening on http://other\n"} {
		if len(addr) > 0 {
			t.Fatalf("greeted before %q", part)
		}
		if _, err := io.WriteString(g, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-addr; got != "127.0.0.1:4711" {
		t.Errorf("got %q", got)
	}
}

func TestTail(t *testing.T) {
	var got tail
	for range 3 {
		fmt.Fprint(&got, strings.Repeat("a", 2000))
	}
	fmt.Fprint(&got, "end")
	if want := strings.Repeat("a", 4096-3) + "end"; got.String() != want {
		t.Errorf("got %d bytes that end with %.10q", len(got.String()), got.String()[len(got.String())-10:])
	}
}

func TestReport(t *testing.T) {
	var r report
	r.ratio("CPU per request", "10.0 µs", "12.5 µs", []float64{1.1, 1.4, 1.2}, 1.5)
	if r.over() {
		t.Error("over with nothing over")
	}
	r.ratio("CPU per chunk", "1.0 µs", "3.0 µs", []float64{2.6, 3.1}, 2.5)
	r.below("memory", 50, 64, 64, "KiB")
	r.below("start", 0, 0.0661, 1, "s")
	r.details = append(r.details, detail{"request", "nginx", "2.0 µs", "30.0 µs", "1.00"})
	r.tables = append(r.tables, [][]string{{"a request", "new"}, {"read", "1.0 µs"}})
	r.note("nginx: %s", "fine")
	r.note("nginx: %s", "fine")
	if !r.over() {
		t.Error("not over")
	}
	var got strings.Builder
	if err := r.write(&got); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	want := []string{
		"what             baseline  stator    ratio  range      target",
		"CPU per request  10.0 µs   12.5 µs   1.20   1.10–1.40  ≤ 1.5×    ok",
		"CPU per chunk    1.0 µs    3.0 µs    2.85   2.60–3.10  ≤ 2.5×    over",
		"memory           50 KiB    64 KiB    1.28              < 64 KiB  over",
		"start                      0.0661 s                    < 1 s     ok",
		"",
		"for information  through  CPU     median time  client reads",
		"request          nginx    2.0 µs  30.0 µs      1.00",
		"",
		"a request  new",
		"read       1.0 µs",
		"nginx: fine",
		"",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 8, 1, 2}, 3},
	} {
		before := fmt.Sprint(test.values)
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
		if after := fmt.Sprint(test.values); after != before {
			t.Errorf("median changed %s into %s", before, after)
		}
	}
}

// TestRatios takes the machine getting slower in the second round: the ratio is
// that of neighbours in time.
func TestRatios(t *testing.T) {
	a := []round{{cpu: 30}, {cpu: 90}}
	b := []round{{cpu: 20}, {cpu: 60}}
	if diff := cmp.Diff([]float64{1.5, 1.5}, ratios(a, b)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
