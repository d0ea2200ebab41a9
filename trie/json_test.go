package trie

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plain compares tries by what is exported.
var plain = cmpopts.IgnoreUnexported(Node{})

func mustParse(t testing.TB, text string) *Trie {
	t.Helper()
	tr, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The files were written by Python's json.dump with an indent of 2.
func TestCanonicalFilesAreKept(t *testing.T) {
	for _, name := range []string{"demo.json", "names.json", "floats.json", "old_rewritten.json", "wide.json"} {
		t.Run(name, func(t *testing.T) {
			data := testdata(t, name)
			tr, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(data), string(tr.AppendJSON(nil))); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJ1(t *testing.T) {
	t.Run("saved and loaded", func(t *testing.T) {
		b := NewBuilder(Options{WorkflowName: "wf", Sensitivity: new(DefaultWeights())})
		b.Add(twoCalls())
		want := b.Build(at)
		file := filepath.Join(t.TempDir(), "trie.json")
		if err := want.Save(file); err != nil {
			t.Fatal(err)
		}
		got, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, plain); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
		if got.Version != "1.0" || got.WorkflowName != "wf" || got.GeneratedAt != "2026-03-01T12:00:00.123456+00:00" {
			t.Errorf("metadata = %q, %q, %q", got.Version, got.WorkflowName, got.GeneratedAt)
		}
		if p, ok := got.Find(nil, 1); !ok || p.LatencySensitivity == nil || *p.LatencySensitivity != 5 {
			t.Errorf("sensitivity of the first call was lost: %+v", p)
		}
	})
	t.Run("old file without latency_sensitivity", func(t *testing.T) {
		old, err := Parse(testdata(t, "old.json"))
		if err != nil {
			t.Fatal(err)
		}
		p, ok := old.Find([]string{"agent"}, 1)
		if !ok || p.LatencySensitivity != nil || p.OutputTokens.P90 != 100 {
			t.Errorf("prediction = %+v, %v", p, ok)
		}
		if diff := cmp.Diff(string(testdata(t, "old_rewritten.json")), string(old.AppendJSON(nil))); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	})
}

func TestMarshal(t *testing.T) {
	data := testdata(t, "names.json")
	var tr Trie
	if err := json.Unmarshal(data, &tr); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(map[string]*Trie{"trie": &tr})
	if err != nil {
		t.Fatal(err)
	}
	var again struct{ Trie *Trie }
	if err := json.Unmarshal(compact, &again); err != nil {
		t.Fatal(err)
	}
	if got := string(again.Trie.AppendJSON(nil)); got != string(data) {
		t.Errorf("after Marshal and Unmarshal:\n%s", got)
	}
	if err := json.Unmarshal([]byte(`{"root":1}`), &tr); err == nil || tr.Root == nil {
		t.Errorf("error = %v, root = %v; want an error and the trie as it was", err, tr.Root)
	}
}

func TestAppendJSONOfOddTries(t *testing.T) {
	empty := `{
  "version": "1.0",
  "generated_at": "",
  "workflow_name": "",
  "root": {
    "name": "root",
    "predictions_by_call_index": {},
    "predictions_any_index": null,
    "children": {}
  }
}`
	if got := string(new(Trie).AppendJSON(nil)); got != empty {
		t.Errorf("zero Trie =\n%s", got)
	}
	odd := &Trie{Root: &Node{Name: "\xff", AnyIndex: &Prediction{OutputTokens: Metrics{1, math.NaN(), math.Inf(1), math.Inf(-1), 1}}}}
	got, err := Parse(odd.AppendJSON(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got.Root.Name != "\ufffd" || got.Root.AnyIndex.OutputTokens != (Metrics{1, 0, 0, 0, 1}) {
		t.Errorf("read back: %q, %+v", got.Root.Name, got.Root.AnyIndex.OutputTokens)
	}
}

const (
	zeros = `{"sample_count":0,"mean":0,"p50":0,"p90":0,"p95":0}`
	none  = `{"remaining_calls":` + zeros + `,"interarrival_ms":` + zeros + `,"output_tokens":` + zeros + `}`
)

func TestParseIsTolerant(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     *Trie
	}{
		{"bare", `{"root":{"name":"root"}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "root"}}},
		{"minor version", `{"version":"1.7","root":{"name":"root"}} ` + "\n",
			&Trie{Version: "1.7", WorkflowName: "unknown", Root: &Node{Name: "root"}}},
		{"unknown members", `{"x":[{"y":"}"}],"root":{"name":"root","z":{"a":[1,null,true]},"predictions_any_index":null}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "root"}}},
		{"metrics default to 0, integers may look like floats",
			`{"root":{"name":"r","predictions_any_index":{"remaining_calls":{"mean":3,"sample_count":2.0},"interarrival_ms":{},"output_tokens":{"q":1},"latency_sensitivity":4.0}}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "r", AnyIndex: &Prediction{
				RemainingCalls: Metrics{SampleCount: 2, Mean: 3}, LatencySensitivity: new(4)}}}},
		{"the last of duplicates counts, at the first one's place",
			`{"root":{"name":"a","name":"r","children":{"x":{"name":"x","predictions_any_index":` + none + `},"y":{"name":"y"},"x":{"name":"x"}},
			  "predictions_by_call_index":{"2":` + none + `,"1":` + none + `,"2":{"remaining_calls":{"mean":7},"interarrival_ms":{},"output_tokens":{}}}}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "r",
				Children: []*Node{{Name: "x"}, {Name: "y"}},
				ByCallIndex: []Indexed{
					{2, Prediction{RemainingCalls: Metrics{Mean: 7}}}, {1, Prediction{}},
				}}}},
		{"a whole member twice", `{"root":{"name":"r","children":{"x":{"name":"x"}},"children":{"y":{"name":"y"}}}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "r", Children: []*Node{{Name: "y"}}}}},
		{"the key is the name", `{"root":{"n\u0061me":"r","children":{"\u00e9":{"name":"other"}}}}`,
			&Trie{Version: "1.0", WorkflowName: "unknown", Root: &Node{Name: "r", Children: []*Node{{Name: "é"}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, plain); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	inRoot := func(members string) string { return `{"root":{"name":"root",` + members + `}}` }
	metric := func(name, value string) string {
		return inRoot(`"children":{"agent":{"name":"agent","predictions_by_call_index":{"1":{"remaining_calls":` + zeros +
			`,"interarrival_ms":` + zeros + `,"output_tokens":{"` + name + `":` + value + `}}}}}`)
	}
	const at = "line 1: root.children.agent.predictions_by_call_index.1.output_tokens"
	deep := strings.Repeat(`{"name":"n","children":{"c":`, MaxDepth+1) + `{"name":"n"}` + strings.Repeat(`}}`, MaxDepth+1)
	for _, c := range []struct{ name, in, want string }{
		{"empty", ``, "cut off"},
		{"cut", `{"root":{"name":"root"`, "cut off"},
		{"not an object", "\n\n[]", "line 3: expected an object, got an array"},
		{"something after it", `{"root":{"name":"r"}} x`, "line 1: expected nothing after the trie"},
		{"no root", `{"version":"1.0"}`, "root: expected an object, got nothing"},
		{"lines of something else", `{"a":1}` + "\n" + `{"a":2}`, "line 1: root: expected an object, got nothing"},
		{"root null", `{"root":null}`, "root: expected an object, got null"},
		{"no name", `{"root":{}}`, "root.name: expected a string, got nothing"},
		{"other major version", `{"version":"2.0","root":{"name":"r"}}`, `version: expected 1.x, got "2.0"`},
		{"version a number", `{"version":1,"root":{"name":"r"}}`, "version: expected a string, got a number"},
		{"mean a string", metric("mean", `"x"`), at + ".mean: expected a number, got a string"},
		{"mean null", metric("p90", `null`), at + ".p90: expected a number, got null"},
		{"NaN", metric("p50", `NaN`), at + ".p50: expected a finite number, got NaN"},
		{"infinite", metric("p50", `-Infinity`), at + ".p50: expected a finite number, got -Infinity"},
		{"out of range", metric("p50", `1e999`), at + ".p50: expected a finite number, got 1e999"},
		{"no JSON number", metric("p50", `01.`), at + ".p50: expected a finite number, got 01."},
		{"count not whole", metric("sample_count", `1.5`), at + ".sample_count: expected an integer, got 1.5"},
		{"count negative", metric("sample_count", `-1`), at + ".sample_count: expected a count, got -1"},
		{"children null", inRoot(`"children":null`), "root.children: expected an object, got null"},
		{"indices null", inRoot(`"predictions_by_call_index":null`), "predictions_by_call_index: expected an object, got null"},
		{"index 0", inRoot(`"predictions_by_call_index":{"0":` + none + `}`), "predictions_by_call_index.0: expected an index from 1 on"},
		{"index negative", inRoot(`"predictions_by_call_index":{"-1":` + none + `}`), "predictions_by_call_index.-1: expected an index from 1 on"},
		{"index a word", inRoot(`"predictions_by_call_index":{"on e":` + none + `}`), `predictions_by_call_index."on e": expected an index from 1 on`},
		{"metrics missing", inRoot(`"predictions_any_index":{"remaining_calls":{},"output_tokens":{}}`), "predictions_any_index.interarrival_ms: expected an object, got nothing"},
		{"too deep", `{"root":` + deep + `}`, "expected at most 256 levels of children"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestParseErrorShort: an error shows the beginning and the end of a path, however long it
// is.
func TestParseErrorShort(t *testing.T) {
	levels := strings.Repeat(`{"name":"n","children":{"é":`, MaxDepth+1)
	_, err := Parse([]byte(`{"root":` + levels))
	const pair = "children.é."
	want := "line 1: root." + strings.Repeat(pair, 9) + "childre…." + strings.Repeat(pair, 9) + "children.é: expected at most 256 levels of children"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v\nwant    %s", err, want)
	}
	for _, in := range []string{
		`{"root":{"name":"n","children":{"` + strings.Repeat("é", 20_000) + `":1}}}`,
		`{"root":{"name":"n","children":{"` + strings.Repeat("\x80", 20_000) + `":1}}}`,
		`{"version":"` + strings.Repeat("2", 20_000) + `"}`,
		`{"root":{"name":"n","predictions_any_index":{"latency_sensitivity":0.` + strings.Repeat("1", 20_000) + `}}}`,
	} {
		if _, err := Parse([]byte(in)); err == nil || len(err.Error()) > 400 {
			t.Errorf("%.80s: error = %.1000v", in, err)
		}
	}
}

// Half a surrogate pair cannot be kept.
func TestHalfSurrogate(t *testing.T) {
	tr := mustParse(t, `{"root":{"name":"root","children":{"a\ud800b":{"name":""}}}}`)
	if name := tr.Root.Children[0].Name; name != "a\ufffdb" {
		t.Errorf("name %q", name)
	}
	if text := string(tr.AppendJSON(nil)); !strings.Contains(text, `"a\ufffdb": {`) {
		t.Errorf("written as %s", text)
	}
}
