package trace_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/trace"
)

// recorded returns a line of a recording with the members given.
func recorded(members string) string { return `{` + schema + `,` + members + "}\n" }

// Of a request that did not run, nothing else is looked at; of one that cannot be
// part of a trace, it is said why.
func TestReadSkips(t *testing.T) {
	const ran = `"model":"m","arrival_us":5,"input_tokens":20,"output_tokens":1,"block_size":16,"block_hashes":["00000000000000aa"]`
	for _, tt := range []struct {
		name, row string
		want      trace.Skipped
	}{
		{"ran", ran, trace.Skipped{}},
		{"an answer of no tokens", `"arrival_us":5,"input_tokens":20,"output_tokens":0,"outcome":"completed"`, trace.Skipped{}},
		{"refused", `"outcome":"refused","input_tokens":99999999,"block_hashes":["00000000000000aa"]`, trace.Skipped{NotRun: 1}},
		{"no output", `"outcome":"error","input_tokens":99999999,"block_hashes":"?"`, trace.Skipped{NotRun: 1}},
		{"failed before its first token", `"outcome":"error","input_tokens":99999999,"output_tokens":0`, trace.Skipped{NotRun: 1}},
		{"no prompt", `"arrival_us":5,"input_tokens":0,"input_guessed":true,"output_tokens":1`, trace.Skipped{NotRun: 1}},
		{"prompts", ran + `,"prompts":2`, trace.Skipped{Several: 1}},
		{"choices", ran + `,"choices":3`, trace.Skipped{Several: 1}},
		{"one of each", ran + `,"prompts":1,"choices":1`, trace.Skipped{}},
		{"long prompt", `"arrival_us":5,"input_tokens":16777217,"output_tokens":1`, trace.Skipped{TooLong: 1}},
		{"what an engine says of a prompt", `"arrival_us":5,"input_tokens":3,"input_guessed":true,"engine_input_tokens":2147483648,"output_tokens":1`, trace.Skipped{TooLong: 1}},
		{"what an engine says of an answer", `"arrival_us":5,"input_tokens":3,"output_tokens":9007199254740993`, trace.Skipped{TooLong: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := readString(t, recorded(ran)+recorded(tt.row)+recorded(ran))
			if tr.Skipped != tt.want || len(tr.Requests) != 3-tt.want.Rows() {
				t.Errorf("%d requests; %v, want %v", len(tr.Requests), tr.Skipped, tt.want)
			}
		})
	}
}

func TestSkippedString(t *testing.T) {
	for want, s := range map[string]trace.Skipped{
		"0 rows skipped":          {},
		"1 row skipped: not run":  {NotRun: 1},
		"2 rows skipped: not run": {NotRun: 2},
		"3 rows skipped: 1 not run, 2 with several prompts or answers":                 {NotRun: 1, Several: 2},
		"1,003 rows skipped: 1 too long, 2 cut off, 1,000 with blocks of another size": {TooLong: 1, CutOff: 2, OtherBlockSize: 1000},
	} {
		if got := s.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A short row can tell of a long prompt. What is not known of it takes no memory.
func TestReadWithoutHashes(t *testing.T) {
	var file strings.Builder
	file.WriteString(recorded(`"model":"m","arrival_us":0,"input_tokens":1,"output_tokens":1,"block_size":1,"block_hashes":["00000000000000aa"]`))
	const rows = 100
	for i := range rows {
		file.WriteString(recorded(fmt.Sprintf(`"model":"m","arrival_us":%d,"input_tokens":16777216,"output_tokens":1`, i)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tr := readString(t, file.String())
	report := trace.NewReport("x", tr, []int{1, 8}, []int{1 << 20})
	larger, err := tr.WithBlockSize(512)
	if err != nil {
		t.Fatal(err)
	}
	a, b := tr.Content(3, 16), tr.Content(4, 16)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d KiB were allocated for a file of %d", n>>10, file.Len()>>10)
	}
	blocks := rows<<24 + 1
	if s := report.Stats; s.Blocks != blocks || s.DistinctBlocks != blocks || s.OnceBlocks != blocks || s.FullBlocks != blocks || s.FirstBlockRequests != 1 {
		t.Errorf("%+v", s)
	}
	if h := report.LRU[0].Hits; h != (trace.Hits{}) {
		t.Errorf("%+v", h)
	}
	if n := trace.Stat(larger).DistinctBlocks; n != rows<<24/512+1 {
		t.Errorf("%d blocks of 512", n)
	}
	if a.Full() != 1<<20 || a.Block(0) == b.Block(0) || a.Block(0) == a.Block(1) {
		t.Errorf("%d blocks, %v, %v, %v", a.Full(), a.Block(0), a.Block(1), b.Block(0))
	}
	// Not every trace fits Mooncake's format.
	if err := trace.WriteMooncake(io.Discard, tr); err == nil || !strings.Contains(err.Error(), "16777216 blocks need a line of more than 64 MiB") {
		t.Errorf("WriteMooncake: %v", err)
	}
	if err := trace.WriteMooncake(io.Discard, larger); err != nil {
		t.Errorf("WriteMooncake: %v", err)
	}
}

// Models have nothing in common, whatever their hashes say.
func TestReadModels(t *testing.T) {
	row := `"arrival_us":%d,"model":%q,"input_tokens":48,"output_tokens":1,"block_size":16,"block_hashes":["00000000000000aa","00000000000000ab","00000000000000ac"]`
	tr := readString(t, recorded(fmt.Sprintf(row, 1, "a"))+recorded(fmt.Sprintf(row, 2, "b"))+recorded(fmt.Sprintf(row, 3, "a"))+recorded(fmt.Sprintf(row, 4, "b")))
	var got [][]uint32
	for _, r := range tr.Requests {
		got = append(got, r.Blocks)
	}
	if diff := cmp.Diff([][]uint32{{0, 1, 2}, {3, 4, 5}, {0, 1, 2}, {3, 4, 5}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s := trace.Stat(tr); s.DistinctBlocks != 6 || s.FirstBlockRequests != 2 {
		t.Errorf("%+v", s)
	}
}

// What one client calls a session is none of another's, and none of another
// model's.
func TestReadSessions(t *testing.T) {
	var file string
	for i, who := range []string{"alice/m", "bob/m", "alice/n", "alice/m", "bob/m", "/m", "alice/n", "/m"} {
		key, model, _ := strings.Cut(who, "/")
		file += recorded(fmt.Sprintf(`"request_id":%q,"key":%q,"model":%q,"session_id":"chat","arrival_us":%d,"total_time_ms":1,"input_tokens":5,"output_tokens":1`,
			fmt.Sprint(i), key, model, 1000_000*i))
	}
	file += recorded(`"session_id":"chat#2","model":"m","arrival_us":9000000,"input_tokens":5,"output_tokens":1`)
	tr := readString(t, file)
	var names []string
	for _, r := range tr.Requests {
		names = append(names, r.Session)
	}
	if diff := cmp.Diff([]string{"chat", "chat#3", "chat#4", "chat", "chat#3", "chat#5", "chat#4", "chat#5", "chat#2"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{-1, -1, -1, 0, 1, -1, 2, 5, -1}, tr.Previous()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s := trace.Stat(tr); s.Sessions != 5 || s.Follows != 4 {
		t.Errorf("%+v", s)
	}
}

// One of several block sizes can be chosen; rows without hashes have none.
func TestReadBlockSize(t *testing.T) {
	row := `"arrival_us":1,"model":"m","input_tokens":32,"output_tokens":1,"block_size":%d,"block_hashes":[%s]`
	file := recorded(fmt.Sprintf(row, 16, `"00000000000000aa","00000000000000ab"`)) + recorded(fmt.Sprintf(row, 32, `"00000000000000ac"`)) +
		recorded(`"arrival_us":1,"model":"m","input_tokens":32,"output_tokens":1`)
	if _, err := trace.Read(strings.NewReader(file), trace.ReadOptions{}); !errors.Is(err, trace.ErrBlockSize) {
		t.Errorf("no choice: %v", err)
	}
	for _, size := range []int{16, 32} {
		tr, err := trace.Read(strings.NewReader(file), trace.ReadOptions{BlockSize: size})
		if err != nil || tr.BlockSize != size || len(tr.Requests) != 2 || tr.Skipped != (trace.Skipped{OtherBlockSize: 1}) {
			t.Errorf("%d: %+v, %v", size, tr, err)
		}
	}
	if _, err := trace.Read(strings.NewReader(file[:strings.Index(file, "\n")]), trace.ReadOptions{BlockSize: 32}); err == nil || err.Error() != "no requests: 1 row skipped: with blocks of another size" {
		t.Errorf("another size: %v", err)
	}
}

// Who asks for a model that is not there hears which are.
func TestReadNoSuchModel(t *testing.T) {
	var file strings.Builder
	want := `no requests for model "x", only for "a"`
	for n := 1; n <= 12; n++ {
		name := string(rune('a' + n - 1))
		file.WriteString(recorded(`"outcome":"refused","model":""`))
		file.WriteString(recorded(`"arrival_us":1,"model":"` + name + `","input_tokens":32,"output_tokens":1`))
		if n > 1 && n <= 10 {
			want += `, "` + name + `"`
		}
		_, err := trace.Read(strings.NewReader(file.String()), trace.ReadOptions{Model: "x"})
		full := want
		if n > 10 {
			full += fmt.Sprintf(", %d more", n-10)
		}
		if !errors.Is(err, trace.ErrEmpty) || err.Error() != full {
			t.Errorf("got  %v\nwant %s", err, full)
		}
	}
}

// A recording can be read up to where it was cut off, wherever that is.
func TestReadTorn(t *testing.T) {
	var plain string
	for i := range 6 {
		plain += recorded(fmt.Sprintf(`"request_id":"%d","arrival_us":%d,"model":"m","input_tokens":32,"output_tokens":1`, i, i))
	}
	half := len(plain) / 2
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := enc.EncodeAll([]byte(plain[half:]), enc.EncodeAll([]byte(plain[:half]), nil))
	var zipped bytes.Buffer
	for _, part := range []string{plain[:half], plain[half:]} {
		z := gzip.NewWriter(&zipped)
		if _, err := io.WriteString(z, part); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	begin := map[string]int{
		"plain": len(plain) / 6,
		"zstd":  len(enc.EncodeAll([]byte(plain[:half]), nil)),
		"gzip":  zipped.Len() * 3 / 5, // in the second part
	}
	for name, data := range map[string][]byte{"plain": []byte(plain), "zstd": frames, "gzip": zipped.Bytes()} {
		for n := begin[name]; n <= len(data); n++ {
			tr, err := trace.Read(bytes.NewReader(data[:n]), trace.ReadOptions{})
			if err != nil {
				t.Fatalf("%s, %d bytes of %d: %v", name, n, len(data), err)
			}
			if s := tr.Skipped; s.Rows() != s.CutOff || s.CutOff > 1 {
				t.Errorf("%s, %d bytes of %d: %v", name, n, len(data), s)
			}
			for i, r := range tr.Requests {
				if r.ID != fmt.Sprint(i) {
					t.Errorf("%s, %d bytes of %d: request %d is %s", name, n, len(data), i, r.ID)
				}
			}
			if least := map[string]int{"plain": 6 * n / len(plain), "zstd": 3, "gzip": 3}[name]; len(tr.Requests) < least {
				t.Errorf("%s, %d bytes of %d: %d requests", name, n, len(data), len(tr.Requests))
			}
		}
	}
}

// Files of which one was cut off can be concatenated.
func TestReadConcatenated(t *testing.T) {
	row := func(id string) string {
		return recorded(fmt.Sprintf(`"request_id":%q,"arrival_us":1,"model":"m","input_tokens":32,"output_tokens":1`, id))
	}
	torn := func(id string) string { return row(id)[:80] }
	for in, want := range map[string]struct {
		ids     string
		skipped trace.Skipped
	}{
		row("a") + torn("b") + row("c") + row("d"):                        {"a c d", trace.Skipped{CutOff: 1}},
		torn("b") + row("c"):                                              {"c", trace.Skipped{CutOff: 1}},
		row("a") + torn("b") + torn("c") + row("d"):                       {"a d", trace.Skipped{CutOff: 2}},
		row("a") + torn("b") + torn("c"):                                  {"a", trace.Skipped{CutOff: 2}},
		row("a") + torn("b") + strings.TrimSuffix(row("c"), "\n"):         {"a c", trace.Skipped{CutOff: 1}},
		row("a") + "\ufeff" + row("b"):                                    {"a b", trace.Skipped{}},
		row("a") + torn("b") + recorded(`"outcome":"refused"`) + row("c"): {"a c", trace.Skipped{CutOff: 1, NotRun: 1}},
	} {
		tr := readString(t, in)
		var ids []string
		for _, r := range tr.Requests {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != want.ids || tr.Skipped != want.skipped {
			t.Errorf("%s%s, %v; want %s, %v", in, got, tr.Skipped, want.ids, want.skipped)
		}
	}
}

// Nothing of what Mooncake's format says is lost in rows.
func TestMooncakeThroughRows(t *testing.T) {
	for _, in := range []string{
		`{"timestamp": 0, "input_length": 10, "output_length": 0, "hash_ids": [0], "request_id": "a"}
{"timestamp": 5, "input_length": 10, "output_length": 3, "hash_ids": [0], "request_id": "b"}
`,
		// Delays of less than a microsecond, and ones that are all there is in between.
		`{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "request_id": "a"}
{"timestamp": 100, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "delay": 99.999999, "request_id": "b"}
{"timestamp": 200, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "delay": 100, "request_id": "c", "priority": -2, "strict_priority": 3}
{"timestamp": 300, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "delay": 0.000001, "request_id": "d"}
{"timestamp": 400, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "delay": 0, "request_id": "e"}
{"timestamp": 500, "input_length": 10, "output_length": 1, "hash_ids": [0], "session_id": "s", "request_id": "f"}
`,
	} {
		var out bytes.Buffer
		if err := trace.WriteMooncake(&out, rewrite(t, readString(t, in), "stator")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in, out.String()); diff != "" {
			t.Errorf("-in +out:\n%s", diff)
		}
	}
}

// Delays come back as they were when arrivals are not whole microseconds.
func TestRowsKeepDelays(t *testing.T) {
	tr := &trace.Trace{BlockSize: 4}
	at := 700 * time.Nanosecond
	for i := range 50 {
		delay := time.Duration(i*i*333 + 1)
		at += delay + time.Duration(i%3)*time.Nanosecond
		tr.Requests = append(tr.Requests, trace.Request{ID: fmt.Sprint(i), Session: "s", Follows: i > 0, DelayKnown: i > 0, Delay: delay, Arrival: at, Input: 4, Output: 1, Blocks: []uint32{0}})
	}
	tr.Requests[0].Delay = 0
	got := rewrite(t, tr, "stator")
	for i, r := range got.Requests {
		want := tr.Requests[i]
		if r.ID != want.ID || r.Delay != want.Delay || r.DelayKnown != want.DelayKnown || r.Follows != want.Follows {
			t.Errorf("request %d: %+v, want %+v", i, r, want)
		}
		if d := r.Arrival - (want.Arrival - tr.Requests[0].Arrival); d < -time.Microsecond || d > time.Duration(i+1)*time.Microsecond {
			t.Errorf("request %d: arrives %v late", i, d)
		}
	}
}

// A delay that is longer than the time between two arrivals has no place in rows.
func TestRowsRefuseDelays(t *testing.T) {
	tr := readString(t, `{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1], "session_id": "s"}
{"timestamp": 100, "input_length": 10, "output_length": 3, "hash_ids": [1], "session_id": "s", "delay": 500}
`)
	var out bytes.Buffer
	err := trace.WriteRows(&out, tr, "m")
	if err == nil || !strings.HasPrefix(err.Error(), "request 2: arrives 100ms after request 1, which it follows with a delay of 500ms: ") || out.Len() != 0 {
		t.Errorf("%v; %s", err, out.Bytes())
	}
}
