package doctor

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/simserver"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// volatile are the parts of a report that differ each time.
var volatile = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:0"},
	{regexp.MustCompile(`("(latency|after|skew|lag)_ms": )-?[\d.]+`), "${1}1.5"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s)\b`), "1.5ms"},
	// A publisher may begin late to send, and then there is one more prompt.
	{regexp.MustCompile(`"batches": \d+`), `"batches": 3`},
	{regexp.MustCompile(`"events": \d+(,\s+"lag_ms")`), `"events": 5$1`},
	{regexp.MustCompile(`\d+ batches`), "3 batches"},
}

// The members of the document are an interface.
func TestJSON(t *testing.T) {
	cfg := sound(simserver.DressVLLM)
	cfg.Adapters = []string{"poet"}
	_, url := start(t, cfg)
	other := sound(simserver.DressVLLM)
	other.Vocabulary = simserver.Bytes
	other.PriorityScheduling = false
	_, second := start(t, other)
	r := examine(t, Config{Seed: 1}, Target{URL: url, TotalBlocks: 16385}, Target{URL: second}, Target{URL: url + "/v1"})
	var doc bytes.Buffer
	if err := r.WriteJSON(&doc); err != nil {
		t.Fatal(err)
	}
	got := doc.Bytes()
	for _, v := range volatile {
		got = v.re.ReplaceAll(got, []byte(v.to))
	}
	golden(t, "report.json", got)
}

func TestText(t *testing.T) {
	r := &Report{Engines: []Engine{
		{
			URL: "http://gpu1:8000", Kind: "vllm", Version: "0.26.0", Models: []string{"m", "poet"}, Checks: []Check{
				{Name: Reach, Status: OK, Text: "answered in 1.2ms"},
				{Name: BlockSize, Status: Fail, Text: "32 configured, 16 stated by the engine, 16 in its events", Advice: "correct or leave out block_size"},
				{Name: MaxSeqs, Status: Skip, Text: "the engine does not say"},
				{Name: Priority, Status: Warn, Text: "ignored\x1b[2J", Advice: "start vLLM with --scheduling-policy priority"},
			},
		},
		{URL: "http://gpu2:8000", Checks: []Check{{Name: Reach, Status: OK, Text: "answered\nin 1.2ms"}}},
		{URL: "http://gpu3:8000", Checks: []Check{{Name: Load, Status: Warn, Text: "no metrics"}}},
	}}
	r.sum()
	for name, color := range map[string]bool{"report.txt": false, "report_color.txt": true} {
		var text bytes.Buffer
		if err := r.WriteText(&text, color); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.Bytes())
	}
	if r.Status != Fail || r.Problems != 2 {
		t.Errorf("report %+v", r)
	}
}

// The last line says how many engines failed, and how many others have warnings.
func TestLastLine(t *testing.T) {
	for _, tt := range []struct {
		engines []Status
		want    string
	}{
		{[]Status{OK}, "1 engine: no problems"},
		{[]Status{OK, Warn}, "2 engines: 1 with warnings"},
		{[]Status{Fail, Fail}, "2 engines: 2 failed"},
		{[]Status{Fail, OK, Warn, Fail, Warn, Warn}, "6 engines: 2 failed, 3 with warnings"},
	} {
		r := &Report{}
		for _, s := range tt.engines {
			r.Engines = append(r.Engines, Engine{Checks: []Check{{Status: s}}})
		}
		r.sum()
		var text bytes.Buffer
		if err := r.WriteText(&text, false); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if got := lines[len(lines)-1]; got != tt.want {
			t.Errorf("%v: %q, want %q", tt.engines, got, tt.want)
		}
	}
}

// Warnings count where they are to.
func TestFailed(t *testing.T) {
	for _, tt := range []struct {
		status        []Status
		usual, strict int
	}{
		{[]Status{OK, Skip}, 0, 0},
		{[]Status{OK, Warn, Skip}, 0, 1},
		{[]Status{Warn, Fail}, 1, 1},
	} {
		r := &Report{Engines: make([]Engine, 1)}
		for _, s := range tt.status {
			r.Engines[0].Checks = append(r.Engines[0].Checks, Check{Status: s})
		}
		r.sum()
		if r.Failed(false) != tt.usual || r.Failed(true) != tt.strict {
			t.Errorf("%v: %d and %d, want %d and %d", tt.status, r.Failed(false), r.Failed(true), tt.usual, tt.strict)
		}
	}
}
