package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func testBar(width int) (*Bar, *strings.Builder, *clock) {
	var out strings.Builder
	c := &clock{time.Unix(1e9, 0)}
	b := NewBar(&out)
	b.width = width
	b.now = func() time.Time { return c.now }
	return b, &out, c
}

func TestBarOnTerminal(t *testing.T) {
	b, out, clock := testBar(100)
	b.Update("tokenizer.json", 0, 10e6)
	clock.pass(10 * time.Millisecond)
	b.Update("tokenizer.json", 1e6, 10e6) // too soon to draw
	clock.pass(990 * time.Millisecond)
	b.Update("tokenizer.json", 5e6, 10e6)
	clock.pass(time.Second)
	b.Update("config.json", 10, 700)
	clock.pass(time.Second)
	b.Update("config.json", 700, 700)
	clock.pass(time.Second)
	b.Update("tokenizer.json", 10e6, 10e6)
	b.Close()
	got := strings.Split(strings.ReplaceAll(out.String(), "\x1b[K", "|"), "\r")
	want := []string{
		"",
		"tokenizer.json  [                        ]   0%  0 B / 10.0 MB|",
		"tokenizer.json  [============            ]  50%  5.0 MB / 10.0 MB  5.0 MB/s|",
		"tokenizer.json  [============            ]  50%  5.0 MB / 10.0 MB  2.5 MB/s|",
		"config.json  700 B in 1s  690 B/s|\n",
		"tokenizer.json  [============            ]  50%  5.0 MB / 10.0 MB  1.7 MB/s|",
		"tokenizer.json  10.0 MB in 4s  2.5 MB/s|\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestBarNarrow(t *testing.T) {
	b, out, _ := testBar(20)
	b.Update("tökenizer\x1b.json", 5, 10)
	b.Close()
	if got, want := out.String(), "\rtökenizer?.json  [=\x1b[K\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBarUnknownSize(t *testing.T) {
	b, out, clock := testBar(80)
	b.Update("x", 0, -1)
	clock.pass(time.Second)
	b.Update("x", 2048, -1)
	b.Update("x", 2048, 2048)
	if got, want := out.String(), "\rx  0 B\x1b[K\rx  2.0 kB  2.0 kB/s\x1b[K\rx  2.0 kB in 1s  2.0 kB/s\x1b[K\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBarElsewhere: a log gets one line for each file, and the rate counts what
// came now.
func TestBarElsewhere(t *testing.T) {
	b, out, clock := testBar(0)
	b.Update("tokenizer.json", 4e6, 10e6)
	for i := range 60 {
		clock.pass(50 * time.Millisecond)
		b.Update("tokenizer.json", 4e6+int64(i+1)*1e5, 10e6)
	}
	b.Update("half.json", 1, 2)
	b.Close()
	if got, want := out.String(), "tokenizer.json  10.0 MB in 3s  2.0 MB/s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBarWait(t *testing.T) {
	why := errors.New("HTTP 503\x1b")
	b, out, clock := testBar(30)
	b.Update("x", 0, 10)
	b.Wait(why, 2040*time.Millisecond)
	clock.pass(2 * time.Second)
	b.Update("x", 10, 10)
	if got, want := out.String(), "\rx  [                        ]\x1b[K\ragain in 2s: HTTP 503?\x1b[K\rx  10 B in 2s  5 B/s\x1b[K\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b, out, _ = testBar(0)
	b.Wait(why, 500*time.Millisecond)
	b.Close()
	if got, want := out.String(), "again in 500ms: HTTP 503?\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBarFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b := NewBar(f); b.width != 0 {
		t.Errorf("a file is a terminal of %d columns", b.width)
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 11_422_654: "11.4 MB", 5e12: "5.0 TB", 5e15: "5000.0 TB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}
