package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/openai"
)

// TestLongChat looks at the request, and for the places where it is changed.
func TestLongChat(t *testing.T) {
	p, err := readPassages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const least = 5000
	body, n, err := longChat(p, least)
	if err != nil {
		t.Fatal(err)
	}
	if n < least || n > 2*least {
		t.Errorf("%d tokens, want %d or a few more", n, least)
	}
	var chat struct {
		Stream   bool
		Messages []message
	}
	if err := json.Unmarshal(body, &chat); err != nil {
		t.Fatal(err)
	}
	last := len(chat.Messages) - 1
	if !chat.Stream || chat.Messages[0].Role != "system" || chat.Messages[last].Role != "user" {
		t.Errorf("no chat: %.200s", body)
	}
	for marker, m := range map[string]message{firstMarker: chat.Messages[0], lastMarker: chat.Messages[last]} {
		if !strings.HasPrefix(m.Content, marker+markerDigits) {
			t.Errorf("%q: no %s", m.Content, marker+markerDigits)
		}
		// Where it comes first is where it is looked for.
		if at := bytes.Index(body, []byte(marker)); !bytes.HasPrefix(body[at+len(marker):], []byte(markerDigits)) {
			t.Errorf("%q is also elsewhere: %.80s", marker, body[at:])
		}
	}
}

func TestCannedStream(t *testing.T) {
	whole, hidden := cannedStream(3)
	events, err := splitEvents(whole)
	if err != nil || len(events) != 5 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	var info openai.ChunkInfo
	for i, ev := range events[:4] {
		data := bytes.TrimSpace(bytes.TrimPrefix(ev, []byte("data: ")))
		if err := openai.ParseChunk(data, &info); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if got, want := info.Usage != nil, i == 3; got != want {
			t.Errorf("event %d: usage %v, want %v", i, got, want)
		}
	}
	if want := bytes.Replace(whole, events[3], nil, 1); !bytes.Equal(hidden, want) {
		t.Errorf("got %s, want %s", hidden, want)
	}
}

// TestMeasureRequest measures short requests through all processes. That prompts are
// known or not is checked by the measurement itself.
func TestMeasureRequest(t *testing.T) {
	var r report
	o := options{dir: t.TempDir(), round: 50 * time.Millisecond, rounds: 1, log: io.Discard}
	if err := measureRequestOf(t.Context(), o, &r, 3000); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 2 || len(r.tables) != 1 || len(r.tables[0]) != 2+int(numStages)+2 {
		t.Fatalf("rows %v, tables %q", r.rows, r.tables)
	}
	for _, cells := range r.tables[0][2 : 2+numStages] {
		if strings.HasPrefix(cells[1], "-") || strings.HasPrefix(cells[4], "-") {
			t.Errorf("less than nothing: %q", cells)
		}
	}
}

func TestClockReading(t *testing.T) {
	for _, test := range []struct {
		cached, overlap int
		known, want     bool
	}{
		{0, 0, false, true},
		{2000, 60, false, false},
		{0, 60, false, false},
		{1990, 62, true, true},
		{1990, 0, true, false},
		{0, 62, true, false},
	} {
		c := clockReading{Requests: 2, Tokens: 2000, Cached: test.cached, Overlap: test.overlap}
		if err := c.check(test.known); (err == nil) != test.want {
			t.Errorf("%+v: known %v: got %v", c, test.known, err)
		}
	}
}

func TestStageTable(t *testing.T) {
	s := stageSplit{what: "new", total: 50 * time.Microsecond, proxy: 10 * time.Microsecond, reading: clockReading{Requests: 2}}
	for i := range s.reading.Stages {
		s.reading.Stages[i] = 10 * time.Microsecond
	}
	table := stageTable{head: "a request", splits: []stageSplit{s}}
	got := table.cells()
	want := [][]string{
		{"a request", "new", "", ""},
		{"", "CPU", "share", "over a proxy"},
		{"read the body", "5.0 µs", "10.0 %", "0.50×"},
	}
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	want = [][]string{
		{"the rest", "10.0 µs", "20.0 %", "1.00×"},
		{"all", "50.0 µs", "100.0 %", "5.00×"},
	}
	if diff := cmp.Diff(want, got[len(got)-2:]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
