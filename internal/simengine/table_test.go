package simengine

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readTable(tb testing.TB, name string) *Table {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	table, err := ParseTable(data)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return table
}

// TestTableFormats reads one profile in all its forms.
func TestTableFormats(t *testing.T) {
	want := readTable(t, "profile.json")
	for _, name := range []string{"profile.npz", "profile-deflated.npz"} {
		if diff := cmp.Diff(want, readTable(t, name), cmp.AllowUnexported(Table{})); diff != "" {
			t.Errorf("%s differs from profile.json:\n%s", name, diff)
		}
	}
}

// TestTableTypes reads integers, short floats and a flat grid, beside an array that
// is none of the table's.
func TestTableTypes(t *testing.T) {
	want := &Table{
		promptTokens: axis{0, 1000, 3000},
		prefill:      []float64{16.5, 32, 80},
		kvTokens:     axis{0, 100000},
		meanContext:  axis{0, 4096},
		decode:       []float64{4.5, 5, 6.5, 9},
	}
	if diff := cmp.Diff(want, readTable(t, "types.npz"), cmp.AllowUnexported(Table{})); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	flat := ` { "decode_itl": [4.5,5,6.5,9], "decode_context_length": [0,4096], "decode_active_kv_tokens": [0,1E5],
		"prefill_ttft_ms": [16.5,32,80], "prefill_isl": [0,1000,3000] }`
	got, err := ParseTable([]byte(flat))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Table{})); diff != "" {
		t.Errorf("flat JSON (-want +got):\n%s", diff)
	}
}

// TestTableMeetsItsPoints asks for what the profile was measured and computed at.
func TestTableMeetsItsPoints(t *testing.T) {
	table := readTable(t, "profile.json")
	for i, x := range table.promptTokens {
		b := Batch{Prompts: 3, Prefix: 640, Tokens: 640 + int(x)}
		if got, want := table.Prefill(&b), table.prefill[i]; !nearMS(got, want) {
			t.Errorf("prefill of %v tokens takes %v ms, want %v", x, got, want)
		}
	}
	for _, kv := range table.kvTokens {
		for _, mean := range table.meanContext {
			b := Batch{Decodes: int(kv / mean), Context: int(kv)}
			if got, want := table.Decode(&b), Linear.Decode(&b); math.Abs(got-want) > 1e-6 {
				t.Errorf("decode of %+v takes %v ms, want %v by the formula", b, got, want)
			}
		}
	}
}

// gridProfile is a profile whose numbers can be worked out by hand.
const gridProfile = `{
	"prefill_isl": [100, 200, 400],
	"prefill_ttft_ms": [10, 30, 40],
	"decode_active_kv_tokens": [1000, 2000, 4000],
	"decode_context_length": [10, 20],
	"decode_itl": [[1, 2], [3, 6], [5, 5]]
}`

func TestTablePrefill(t *testing.T) {
	table, err := ParseTable([]byte(gridProfile))
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[int]float64{
		100: 10, 150: 20, 199: 29.8, 200: 30, 201: 30.05, 300: 35, 400: 40, // inside
		75: 5, 50: 0, 49: 0, 1: 0, // below: 0.2 ms a token, down to nothing
		401: 40.05, 1000: 70, 100400: 5040, // above: 0.05 ms a token
		math.MaxInt: maxTime,
	} {
		if got := table.Prefill(&Batch{Prompts: 1, Tokens: tokens}); !nearMS(got, want) {
			t.Errorf("prefill of %d tokens takes %v ms, want %v", tokens, got, want)
		}
	}
}

func TestTableDecode(t *testing.T) {
	table, err := ParseTable([]byte(gridProfile))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		decodes, context int
		want             float64
	}{
		{"point", 100, 1000, 1},
		{"point in the middle", 100, 2000, 6},
		{"last point", 200, 4000, 5},
		{"between contexts", 250, 4000, 5},
		{"between lengths", 75, 1500, 4},                // mean 20
		{"between both", 100, 1500, 3},                  // mean 15: (1.5 + 4.5) / 2
		{"mean rounded down", 97, 1500, 3},              // 15.46
		{"mean just below", 101, 1500, 2.8},             // 14.85: 14
		{"context below", 50, 500, 0},                   // mean 10: 1 - 0.5·2
		{"context below, mean 20", 25, 500, 0},          // 2 - 0.5·4
		{"context below, mean 15", 60, 900, 1.2},        // 1.5 - 0.1·3
		{"context above", 600, 6000, 7},                 // mean 10: 5 + 2
		{"context above, mean 20", 300, 6000, 4},        // 5 - 1
		{"mean above", 50, 1500, 6},                     // mean 30: 3 and 9 at 1000 and 2000, half way
		{"mean below", 300, 1500, 1},                    // mean 5: 0.5 and 1.5
		{"both above", 200, 6000, 1},                    // mean 30: 9 at 2000, 5 at 4000, 1 at 6000
		{"both above, less than nothing", 100, 6000, 0}, // mean 60
		{"both below", 100, 500, 0},                     // mean 5: 0.5 - 0.5·1
		{"one long request", 1, 1000, 100},              // mean 1000: 1 + 99
		{"longest", 1, math.MaxInt, 0},
		{"no request", 0, 1000, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Batch{Decodes: c.decodes, Context: c.context}
			if got := table.Decode(&b); !nearMS(got, c.want) {
				t.Errorf("%v ms, want %v", got, c.want)
			}
		})
	}
}

// TestTableAgainstCorners compares random tables with the sum over the corners of
// the cell, found by looking at each.
func TestTableAgainstCorners(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	randomAxis := func() axis {
		a := axis{float64(rng.IntN(50))}
		for range 1 + rng.IntN(8) {
			a = append(a, a[len(a)-1]+1+float64(rng.IntN(300)))
		}
		return a
	}
	times := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = 100 * rng.Float64()
		}
		return out
	}
	cell := func(a axis, x float64) (int, float64) {
		i := 0
		for i < len(a)-2 && x >= a[i+1] {
			i++
		}
		return i, (x - a[i]) / (a[i+1] - a[i])
	}
	for range 2000 {
		table := Table{promptTokens: randomAxis(), kvTokens: randomAxis(), meanContext: randomAxis()}
		table.prefill = times(len(table.promptTokens))
		table.decode = times(len(table.kvTokens) * len(table.meanContext))
		b := Batch{Prompts: 1, Tokens: 1 + rng.IntN(3000), Decodes: 1 + rng.IntN(9), Context: 1 + rng.IntN(3000)}

		i, w := cell(table.promptTokens, float64(b.Tokens))
		want := max(0, (1-w)*table.prefill[i]+w*table.prefill[i+1])
		if got := table.Prefill(&b); math.Abs(got-want) > 1e-6*max(1, want) {
			t.Errorf("prefill of %+v takes %v ms, want %v from %+v", b, got, want, table)
		}

		i, w = cell(table.kvTokens, float64(b.Context))
		j, v := cell(table.meanContext, math.Floor(float64(b.Context)/float64(b.Decodes)))
		at := func(i, j int) float64 { return table.decode[i*len(table.meanContext)+j] }
		want = (1-w)*(1-v)*at(i, j) + (1-w)*v*at(i, j+1) + w*(1-v)*at(i+1, j) + w*v*at(i+1, j+1)
		want = min(max(0, want), maxTime)
		if got := table.Decode(&b); math.Abs(got-want) > 1e-6*max(1, want) {
			t.Errorf("decode of %+v takes %v ms, want %v from %+v", b, got, want, table)
		}
	}
}

// TestTableErrors checks that an error names the array and what was expected.
func TestTableErrors(t *testing.T) {
	const (
		isl     = `"prefill_isl": [100, 200, 400]`
		ttft    = `"prefill_ttft_ms": [10, 30, 40]`
		kv      = `"decode_active_kv_tokens": [1000, 2000, 4000]`
		context = `"decode_context_length": [10, 20]`
		itl     = `"decode_itl": [[1, 2], [3, 6], [5, 5]]`
	)
	for _, c := range []struct{ name, old, new, want string }{
		{"missing", itl, ``, "decode_itl: expected, not found"},
		{"two missing", isl + ",\n\t" + ttft, ``, "prefill_isl, prefill_ttft_ms: expected, not found"},
		{"unknown", itl, itl + `, "decode_itl_ms": [[1], {"x": [2]}], "gpu": "H200"`, `unknown members ["decode_itl_ms" "gpu"]`},
		{"case", `"decode_itl"`, `"Decode_ITL"`, `unknown members ["Decode_ITL"]`},
		{"twice", itl, itl + "," + itl, "decode_itl: expected once, got it again"},
		{"null", ttft, `"prefill_ttft_ms": null`, "prefill_ttft_ms: expected an array, got null"},
		{"number", ttft, `"prefill_ttft_ms": 3`, "prefill_ttft_ms: expected an array, got a number"},
		{"object", ttft, `"prefill_ttft_ms": {"0": 3}`, "prefill_ttft_ms: expected an array, got an object"},
		{"null value", ttft, `"prefill_ttft_ms": [10, null, 40]`, "prefill_ttft_ms[1]: expected a number, got null"},
		{"string value", ttft, `"prefill_ttft_ms": [10, "30", 40]`, "prefill_ttft_ms[1]: expected a number, got a string"},
		{"boolean in a row", itl, `"decode_itl": [[1, 2], [3, true], [5, 5]]`, "decode_itl[1][1]: expected a number, got a boolean"},
		{"number among rows", itl, `"decode_itl": [[1, 2], 3, [5, 5]]`, "decode_itl[1]: expected an array like those before, got a number"},
		{"row among numbers", itl, `"decode_itl": [1, 2, [3, 6], 5, 5]`, "decode_itl[2]: expected a number, got an array"},
		{"three dimensions", itl, `"decode_itl": [[[1, 2], [3, 6], [5, 5]]]`, "decode_itl[0][0]: expected a number, got an array"},
		{"ragged", itl, `"decode_itl": [[1, 2], [3, 6, 7], [5]]`, "decode_itl[1]: expected 2 values like the row before, got 3"},
		{"too large", ttft, `"prefill_ttft_ms": [10, 30, 1e999]`, "prefill_ttft_ms: expected numbers that a float can hold, got 1e999"},
		{"negative time", ttft, `"prefill_ttft_ms": [10, -0.5, 40]`, "prefill_ttft_ms[1]: expected milliseconds from 0 to 1000000000, got -0.5"},
		{"long time", itl, `"decode_itl": [[1, 2], [3, 1e10], [5, 5]]`, "decode_itl[1][1]: expected milliseconds from 0 to 1000000000, got 1e+10"},
		{"long flat time", itl, `"decode_itl": [1, 2, 3, 1e10, 5, 5]`, "decode_itl[3]: expected milliseconds from 0 to 1000000000, got 1e+10"},
		{"few times", ttft, `"prefill_ttft_ms": [10, 30]`, "prefill_ttft_ms: expected 3 values, one for each of prefill_isl, got 2"},
		{"times in rows", ttft, `"prefill_ttft_ms": [[10, 30, 40]]`, "prefill_ttft_ms: expected 3 values, one for each of prefill_isl, got 1×3"},
		{"transposed", itl, `"decode_itl": [[1, 3, 5], [2, 6, 5]]`, "decode_itl: expected 3×2 values, decode_active_kv_tokens by decode_context_length, got 2×3"},
		{"flat and short", itl, `"decode_itl": [1, 2, 3, 6, 5]`, "decode_itl: expected 3×2 values, decode_active_kv_tokens by decode_context_length, got 5"},
		{"empty rows", itl, `"decode_itl": [[], [], []]`, "decode_itl: expected 3×2 values, decode_active_kv_tokens by decode_context_length, got 3×0"},
		{"empty axis", context, `"decode_context_length": []`, "decode_context_length: expected at least 2 values, got 0"},
		{"one point", context, `"decode_context_length": [10]`, "decode_context_length: expected at least 2 values, got 1"},
		{"axis in rows", kv, `"decode_active_kv_tokens": [[1000], [2000]]`, "decode_active_kv_tokens: expected one dimension, got 2×1"},
		{"equal points", kv, `"decode_active_kv_tokens": [1000, 2000, 2000]`, "decode_active_kv_tokens[2]: expected more than the value before, 2000, got 2000"},
		{"equal large points", kv, `"decode_active_kv_tokens": [1000, 1e15, 1e15]`, "decode_active_kv_tokens[2]: expected more than the value before, 1e+15, got 1e+15"},
		{"falling", isl, `"prefill_isl": [100, 400, 200]`, "prefill_isl[2]: expected more than the value before, 400, got 200"},
		{"too close", isl, `"prefill_isl": [0, 5e-324, 200]`, "prefill_isl[1]: expected more than the value before, 0, got 5e-324"},
		{"negative tokens", isl, `"prefill_isl": [-100, 200, 400]`, "prefill_isl[0]: expected tokens from 0 to 1000000000000000, got -100"},
		{"too many tokens", isl, `"prefill_isl": [100, 200, 1e16]`, "prefill_isl[2]: expected tokens from 0 to 1000000000000000, got 1e+16"},
		{"too many values", isl, `"prefill_isl": [` + strings.Repeat("0,", maxValues) + `0]`, "prefill_isl: expected at most 262144 values"},
		{"syntax", ttft, `"prefill_ttft_ms": [10,, 40]`, "JSON, byte "},
		{"bracket", ttft, `"prefill_ttft_ms": [10}`, "JSON, byte "},
		{"syntax in an unknown member", ttft, `"x": [10,, 40]`, "JSON, byte "},
		{"cut off", `[[1, 2], [3, 6], [5, 5]]` + "\n}", `[[1, 2], [3`, "JSON, byte 179: unexpected EOF"},
		{"no end", "\n}", "", "JSON, byte 192: unexpected EOF"},
		{"more", "\n}", "} {}", "JSON, byte 195: expected nothing after the object"},
		{"not JSON", "{\n", "[\n", "expected a JSON object or an NPZ archive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(gridProfile, c.old, c.new, 1)
			if text == gridProfile {
				t.Fatalf("%q is not in the profile", c.old)
			}
			if c.new == "" { // what is left of a member that was taken out
				text = strings.NewReplacer("{\n\t,", "{", ",\n\t\n}", "\n}").Replace(text)
			}
			_, err := ParseTable([]byte(text))
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			if got, ok := strings.CutPrefix(err.Error(), "simengine: table: "); !ok || !strings.HasPrefix(got, c.want) {
				t.Errorf("error %q, want %q", err, c.want)
			}
		})
	}
}

// TestTableSize checks that input is refused before it is read when no table is
// that large, and when there is none.
func TestTableSize(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":  {nil, "simengine: table: expected a JSON object or an NPZ archive"},
		"blank":  {[]byte(" \n"), "simengine: table: expected a JSON object or an NPZ archive"},
		"absurd": {bytes.Repeat([]byte{' '}, maxTableSize+1), "simengine: table: expected at most 16777216 bytes, got 16777217"},
	} {
		if _, err := ParseTable(c.data); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

func TestTimingAllocates(t *testing.T) {
	b := Batch{Prompts: 2, Tokens: 3000, Decodes: 40, Context: 90000, ActiveBlocks: 100, TotalBlocks: 16384, BlockSize: 64}
	for name, timing := range map[string]Timing{
		"table": readTable(t, "profile.npz"), "linear": Linear, "polynomial": Polynomial, "fixed": Fixed{},
	} {
		if n := testing.AllocsPerRun(100, func() { timeSink = timing.Prefill(&b) + timing.Decode(&b) }); n != 0 {
			t.Errorf("%s: %v allocations for the time of a pass, want 0", name, n)
		}
	}
}

var timeSink float64

// FuzzParseTable checks that any input gives an error or a table whose times are
// times.
func FuzzParseTable(f *testing.F) {
	f.Add([]byte(`{"prefill_isl":[1,2],"prefill_ttft_ms":[3,4],"decode_active_kv_tokens":[0,1],"decode_context_length":[0,1],"decode_itl":[[1,2],[3,4]]}`))
	f.Add([]byte(`{"prefill_isl":[0,1e-6],"prefill_ttft_ms":[1e9,0],"decode_active_kv_tokens":[0,1e-6],"decode_context_length":[0,1e-6],"decode_itl":[0,1e9,1e9,0]}`))
	f.Add([]byte(`{"decode_itl":[[1],2],"x":[[[`))
	f.Add(writeNPZ(f, smallArrays(), nil))
	f.Add(writeNPZ(f, smallArrays(), zeroChecksum))
	f.Add(writeNPZ(f, smallArrays()[:1], zeroChecksum))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ParseTable(data)
		if (table == nil) == (err == nil) {
			t.Fatalf("table %v with error %v", table, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "simengine: table: ") {
				t.Errorf("error %q does not say where it is from", err)
			}
			return
		}
		for _, n := range []int{1, 2, 1000, 1 << 20, math.MaxInt} {
			for _, context := range []int{1, 1000, 1 << 30, math.MaxInt} {
				b := Batch{Prompts: 1, Tokens: n, Decodes: n, Context: context}
				for _, ms := range []float64{table.Prefill(&b), table.Decode(&b)} {
					if !(ms >= 0 && ms <= maxTime) {
						t.Errorf("%+v takes %v ms by %+v", b, ms, table)
					}
				}
			}
		}
	})
}

// BenchmarkTimings shows what the time of a pass costs to compute. On a shared Xeon
// core: linear 10 ns, polynomial 13 ns, table 45 ns.
func BenchmarkTimings(b *testing.B) {
	for _, c := range []struct {
		name   string
		timing Timing
	}{
		{"linear", Linear}, {"polynomial", Polynomial}, {"table", readTable(b, "profile.npz")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			batch := Batch{Prompts: 2, Tokens: 3000, Decodes: 40, TotalBlocks: 16384, BlockSize: 64}
			for b.Loop() {
				batch.Context = (batch.Context + 7919) & (1<<20 - 1)
				timeSink = c.timing.Prefill(&batch) + c.timing.Decode(&batch)
			}
		})
	}
}
