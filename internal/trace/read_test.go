package trace_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

func readString(t *testing.T, s string) *trace.Trace {
	t.Helper()
	tr, err := trace.Read(strings.NewReader(s), trace.ReadOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	return tr
}

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func TestReadMooncake(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []trace.Request
	}{
		{
			"byte order mark",
			"\ufeff" + `{"timestamp": 1, "input_length": 3, "output_length": 2, "hash_ids": [46]}`,
			[]trace.Request{{Arrival: ms(1), Input: 3, Output: 2, Blocks: []uint32{0}}},
		},
		{
			"example of the format",
			`{"timestamp": 27482, "input_length": 1300, "output_length": 52, "hash_ids": [46,47,2353]}`,
			[]trace.Request{{Arrival: ms(27482), Input: 1300, Output: 52, Blocks: []uint32{0, 1, 2}}},
		},
		{
			"aliases",
			`{"created_time": 1.5, "input_tokens": 3, "output_tokens": 2, "hash_ids": [9]}`,
			[]trace.Request{{Arrival: ms(1.5), Input: 3, Output: 2, Blocks: []uint32{0}}},
		},
		{
			"the first name counts, null does not",
			`{"timestamp": null, "created_time": 7, "input_length": 4, "input_tokens": 5, "output_length": 2, "output_tokens": 3, "hash_ids": [9], "session_id": null, "delay": null}`,
			[]trace.Request{{Arrival: ms(7), Input: 4, Output: 2, Blocks: []uint32{0}}},
		},
		{
			"length from ids",
			"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [5, 6]}\n\n",
			[]trace.Request{{Input: 1024, Output: 1, Blocks: []uint32{0, 1}}},
		},
		{
			"ids that differ only above 32 bits",
			"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [4294967301]}\n" +
				"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [5, 18446744073709551615]}\n",
			[]trace.Request{
				{Input: 512, Output: 1, Blocks: []uint32{0}},
				{Input: 1024, Output: 1, Blocks: []uint32{1, 2}},
			},
		},
		{
			"ids that do not stand for their prefix",
			"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1, 1, 2]}\n" +
				"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [3, 1, 2]}\n" +
				"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1, 1]}\n",
			[]trace.Request{
				{Input: 1536, Output: 1, Blocks: []uint32{0, 1, 2}},
				{Input: 1536, Output: 1, Blocks: []uint32{3, 4, 5}},
				{Input: 1024, Output: 1, Blocks: []uint32{0, 1}},
			},
		},
		{
			"turns with delays and without",
			"{\"timestamp\": 10, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\"}\n" +
				"{\"timestamp\": 12, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"t\", \"delay\": 0}\n" +
				"{\"timestamp\": 40.25, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\"}\n" +
				"{\"timestamp\": 60, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\", \"delay_ms\": 7}\n" +
				"{\"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\", \"delay\": 5}\n" +
				"{\"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\"}\n" +
				"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\", \"delay\": 1}\n",
			[]trace.Request{
				{Arrival: ms(10), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s"},
				{Arrival: ms(12), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "t"},
				{Arrival: ms(40.25), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true, Delay: ms(30.25)},
				{Arrival: ms(60), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true, Delay: ms(7), DelayKnown: true},
				{Arrival: ms(65), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true, Delay: ms(5), DelayKnown: true},
				{Arrival: ms(65), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true},
				{Arrival: ms(65), Input: 512, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true, Delay: ms(1), DelayKnown: true},
			},
		},
		{
			"newer members",
			`{"timestamp": 0, "output_length": 2, "hash_ids": [1], "request_id": "a\u00e4", "priority": -4, "strict_priority": 7, "policy_class": "x", "output_token_ids": [8, 9]}`,
			[]trace.Request{{Input: 512, Output: 2, Blocks: []uint32{0}, ID: "aä", Hints: &trace.Hints{Priority: new(int32(-4)), StrictPriority: new(uint32(7))}}},
		},
		{
			"numbers as floats",
			"{\"timestamp\": 1e3, \"input_length\": 12.0, \"output_length\": 0, \"hash_ids\": [1]}\r\n",
			[]trace.Request{{Arrival: time.Second, Input: 12, Blocks: []uint32{0}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readString(t, tt.in)
			want := &trace.Trace{BlockSize: 512, Requests: tt.want, Format: "mooncake"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A prompt is as long as there are ids for, and it is told how many had to be cut.
func TestReadMooncakeClamps(t *testing.T) {
	got := readString(t, `{"timestamp": 0, "input_length": 1025, "output_length": 1, "hash_ids": [5, 6]}
{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [5, 6]}
{"timestamp": 0, "input_length": 99999, "output_length": 1, "hash_ids": [5]}
`)
	want := &trace.Trace{BlockSize: 512, Format: "mooncake", Clamped: 2, Requests: []trace.Request{
		{Input: 1024, Output: 1, Blocks: []uint32{0, 1}},
		{Input: 1024, Output: 1, Blocks: []uint32{0, 1}},
		{Input: 512, Output: 1, Blocks: []uint32{0}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s := trace.Stat(got); s.Clamped != 2 {
		t.Errorf("%+v", s)
	}
	if report := trace.NewReport("x", got, nil, nil).String(); !strings.Contains(report, "clamped      2 prompts longer than their ids say\n") {
		t.Errorf("%s", report)
	}
}

const schema = `"schema":"stator.request.trace.v1"`

func TestReadErrors(t *testing.T) {
	ok := `{"timestamp": 5, "output_length": 1, "hash_ids": [1], "session_id": "s"}` + "\n"
	own := `{` + schema + `,"model":"m","arrival_us":5,"input_tokens":20,"output_tokens":1,"block_size":16,"block_hashes":["00000000000000aa"]}` + "\n"
	dynamo := `{"schema":"dynamo.request.trace.v1","event_type":"request_end","request":{"request_id":"a","output_tokens":1,"request_received_ms":5,"replay":{"trace_block_size":16,"input_length":20,"input_sequence_hashes":[1,2]}}}` + "\n"
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", "no requests"},
		{"empty lines", "\n \n", "no requests"},
		{"not JSON", ok + "{", "line 2: malformed JSON at byte 1: expected a key in double quotes"},
		{"text", "hello", "line 1: malformed JSON at byte 0: expected an object"},
		{"another object", `{"a":1}`, "line 1: expected a request, with hash_ids as in Mooncake's traces or with schema stator.request.trace.v1"},
		{"another schema", `{"schema":"x"}`, `line 1: schema: expected stator.request.trace.v1 or dynamo.request.trace.v1, got "x"`},
		{"no output", ok + "\n\n" + `{"timestamp": 0, "hash_ids": [1]}`, "line 4: output_length: expected a whole number from 0 to 16777216, got nothing"},
		{"bad output", `{"output_tokens": -1, "hash_ids": [1]}`, "line 1: output_tokens: expected a whole number from 0 to 16777216, got -1"},
		{"huge output", `{"output_length": 16777217, "hash_ids": [1]}`, "line 1: output_length: expected a whole number from 0 to 16777216, got 16777217"},
		{"no ids", `{"timestamp": 0, "output_length": 1}`, "line 1: hash_ids: expected an array, got nothing"},
		{"empty ids", `{"output_length": 1, "hash_ids": []}`, "line 1: hash_ids: expected at least one id"},
		{"text ids", `{"output_length": 1, "hash_ids": [1, "2"]}`, "line 1: hash_ids[1]: expected a whole number that is not negative"},
		{"negative ids", `{"output_length": 1, "hash_ids": [-1]}`, "line 1: hash_ids[0]: expected a whole number that is not negative"},
		{"fractions as ids", `{"output_length": 1, "hash_ids": [1.5]}`, "line 1: hash_ids[0]: expected a whole number that is not negative"},
		{"large ids", `{"output_length": 1, "hash_ids": [18446744073709551616]}`, "line 1: hash_ids[0]: expected a number below 2^64"},
		{"no input", `{"output_length": 1, "input_length": 0, "hash_ids": [1]}`, "line 1: input_length: expected a whole number from 1 to 16777216, got 0"},
		{"negative time", `{"timestamp": -1, "output_length": 1, "hash_ids": [1]}`, "line 1: timestamp: expected a number of milliseconds that is not negative, got -1"},
		{"infinite time", `{"timestamp": 1e999, "output_length": 1, "hash_ids": [1]}`, "line 1: timestamp: expected a number of milliseconds that is not negative, got 1e999"},
		{"delay of a first turn", `{"timestamp": 1, "output_length": 1, "hash_ids": [1], "session_id": "s", "delay": 3}`, "line 1: delay: expected none: no request of the session comes before"},
		{"delay without session", `{"timestamp": 1, "output_length": 1, "hash_ids": [1], "delay_ms": 3}`, "line 1: delay_ms: expected none: no request of the session comes before"},
		{"negative delay", ok + `{"timestamp": 9, "output_length": 1, "hash_ids": [1], "session_id": "s", "delay": -1}`, "line 2: delay: expected a number of milliseconds that is not negative, got -1"},
		{"turns in the wrong order", ok + `{"timestamp": 4, "output_length": 1, "hash_ids": [1], "session_id": "s"}`, "line 2: timestamp: expected a time that is not before that of the session's request before"},
		{"session", `{"output_length": 1, "hash_ids": [1], "session_id": 5}`, "line 1: session_id: expected a string in UTF-8, got 5"},
		{"priority", `{"output_length": 1, "hash_ids": [1], "priority": 3000000000}`, "line 1: priority: expected a whole number of 32 bits, got 3000000000"},
		{"output ids", `{"output_length": 1, "hash_ids": [1], "output_token_ids": [1, 2]}`, "line 1: output_token_ids: expected 1 ids, as output_length says, got 2"},
		{"surplus ids", `{"output_length": 1, "input_length": 600, "hash_ids": [1, 2, 3]}`, "line 1: hash_ids: expected at most 2 ids of 512 tokens for a prompt of 600, got 3"},
		{"chats", `{"chat_id": 0, "parent_chat_id": -1, "timestamp": 60.5, "input_length": 1, "output_length": 13, "hash_ids": [0]}`, "line 1: chat_id: expected none: traces of chats, as Qwen's, count time in seconds and are another format, which is not supported"},
		{"chats without parents", `{"parent_chat_id": null, "timestamp": 60.5, "input_length": 1, "output_length": 13, "hash_ids": [0]}`, "line 1: parent_chat_id: expected none: traces of chats, as Qwen's, count time in seconds and are another format, which is not supported"},
		{"agentic", `{"output_length": 1, "hash_ids": [1], "wait_for": ["a"]}`, "line 1: wait_for: agentic traces are not supported"},

		{"row of another schema", own + `{"timestamp": 0}` + "\n", "line 2: schema: expected stator.request.trace.v1, got nothing"},
		{"row without arrival", `{` + schema + `,"input_tokens":1,"output_tokens":1}` + "\n", "line 1: arrival_us: expected a whole number, the time since 1970, got nothing"},
		{"row without input", `{` + schema + `,"arrival_us":5,"output_tokens":1}` + "\n", "line 1: input_tokens: expected a whole number, got nothing"},
		{"row with negative output", `{` + schema + `,"arrival_us":5,"output_tokens":-1}` + "\n", "line 1: output_tokens: expected a whole number, got -1"},
		{"row with prompts", `{` + schema + `,"arrival_us":5,"output_tokens":1,"prompts":"x"}` + "\n", `line 1: prompts: expected a whole number, got "x"`},
		{"row with the hash of a partial block", strings.Replace(own, `20`, `15`, 1), ""},
		{"row with far too many hashes", strings.Replace(own, `"input_tokens":20`, `"input_tokens":40`, 1), "line 1: block_hashes: expected 2 hashes of 16 tokens for a prompt of 40, got 1"},
		{"row with bad hash", strings.Replace(own, `aa"]`, `aa","xyz"]`, 1), `line 1: block_hashes[1]: expected 16 hexadecimal digits, got "xyz"`},
		{"row without block size", strings.Replace(own, `"block_size":16,`, ``, 1), "line 1: block_size: expected a whole number from 1 to 1048576, got nothing"},
		{"block sizes", own + strings.Replace(own, `"block_size":16`, `"block_size":20`, 1), "line 2: block_size: expected 16 as in the rows before, got 20: choose one of these sizes"},
		{"hints", strings.Replace(own, `"model"`, `"hints":{"osl":"x"},"model"`, 1), "line 1: hints: json: cannot unmarshal string into Go struct field Hints.osl of type uint32"},
		{"rows of none that ran", strings.Replace(own, `"output_tokens":1`, `"output_tokens":0`, 1), "no requests: 1 row skipped: not run"},
		{"rows of none that can be used", strings.Replace(own, `"output_tokens":1`, `"output_tokens":0`, 1) + strings.Replace(own, `20`, `99999999`, 1) + own[:60], "no requests: 3 rows skipped: 1 not run, 1 too long, 1 cut off"},
		{"a row that was cut off", own[:60], "no requests: 1 row skipped: cut off"},
		{"a whole line that is no JSON", own + "{\"schema\"\n", "line 2: malformed JSON at byte 9: expected ':'"},

		{"dynamo event", strings.Replace(dynamo, "request_end", "request_begin", 1), `line 1: event_type: expected request_end, request_payload, tool_start, tool_end or tool_error, got "request_begin"`},
		{"dynamo twice", dynamo + dynamo, `line 2: request.request_id: expected another than "a", which was there before`},
		{"dynamo without id", strings.Replace(dynamo, `"request_id":"a",`, ``, 1), "line 1: request.request_id: expected a name, got nothing"},
		{"dynamo with and without agent", dynamo + strings.Replace(strings.Replace(dynamo, `"a"`, `"b"`, 1), `"request":`, `"agent_context":{"session_id":"s"},"request":`, 1), "line 2: agent_context: expected none, as in the rows before, got an object"},
		{"dynamo without and with agent", strings.Replace(dynamo, `"request":`, `"agent_context":{"session_id":"s"},"request":`, 1) + strings.Replace(dynamo, `"a"`, `"b"`, 1), "line 2: agent_context: expected an object, as in the rows before, got nothing"},
		{"dynamo hashes", strings.Replace(dynamo, "[1,2]", "[1]", 1), "line 1: request.replay.input_sequence_hashes: expected 2 hashes of 16 tokens for a prompt of 20, got 1"},
		{"dynamo request", `{"schema":"dynamo.request.trace.v1","event_type":"request_end","request":3}`, "line 1: request: expected an object, got 3"},
		{"dynamo session", strings.Replace(dynamo, `"request"`, `"agent_context":{"session_id":1},"request"`, 1), "line 1: agent_context.session_id: expected a string in UTF-8, got 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := trace.Read(strings.NewReader(tt.in), trace.ReadOptions{})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var line *trace.LineError
			if isLine := strings.HasPrefix(tt.want, "line "); isLine != errors.As(err, &line) {
				t.Errorf("%v is a LineError: %v", err, !isLine)
			}
			if size := strings.Contains(tt.want, "choose one of these sizes") || tt.name == "surplus ids"; size != errors.Is(err, trace.ErrBlockSize) {
				t.Errorf("%v is ErrBlockSize: %v", err, !size)
			}
			if empty := strings.HasPrefix(tt.want, "no requests"); empty != errors.Is(err, trace.ErrEmpty) {
				t.Errorf("%v is ErrEmpty: %v", err, !empty)
			}
		})
	}
	if _, err := trace.Read(strings.NewReader(ok), trace.ReadOptions{BlockSize: -1}); err == nil {
		t.Error("a negative block size is taken")
	}
}

func TestReadRows(t *testing.T) {
	rows := []trace.Row{
		// They are written when they end, so a later arrival may come first.
		{RequestID: "b", Model: "m", SessionID: "s", ArrivalUS: 5_000_000, InputTokens: 40, OutputTokens: new(3), BlockSize: 16, BlockHashes: trace.Hashes{7, 8}, TotalTimeMS: trace.MS(time.Second), Hints: &trace.Hints{OSL: new(uint32(9))}},
		{RequestID: "a", Model: "m", SessionID: "s", ArrivalUS: 1_000_000, InputTokens: 20, OutputTokens: new(3), BlockSize: 16, BlockHashes: trace.Hashes{7}, TotalTimeMS: trace.MS(1500 * time.Millisecond)},
		{RequestID: "refused", ArrivalUS: 0, InputTokens: 20, Outcome: trace.OutcomeRefused},
		{RequestID: "overlaps", Model: "m", SessionID: "s", ArrivalUS: 5_500_000, InputTokens: 16, OutputTokens: new(3), BlockSize: 16, BlockHashes: trace.Hashes{7}},
		{RequestID: "end unknown", Model: "m", SessionID: "s", ArrivalUS: 6_500_000, InputTokens: 17, OutputTokens: new(3), BlockSize: 16, BlockHashes: trace.Hashes{7, 9}},
		{RequestID: "guess", Model: "n", ArrivalUS: 6_500_000, InputTokens: 99, InputGuessed: true, EngineInputTokens: new(33), OutputTokens: new(1)},
		{RequestID: "no tokens", ArrivalUS: 7_000_000, InputTokens: 9, OutputTokens: new(0), Outcome: trace.OutcomeError},
	}
	var file []byte
	for i := range rows {
		var err error
		if file, err = rows[i].AppendJSON(file); err != nil {
			t.Fatal(err)
		}
	}
	want := &trace.Trace{
		BlockSize: 16, Format: "stator", Skipped: trace.Skipped{NotRun: 2},
		Requests: []trace.Request{
			{ID: "a", Model: "m", Session: "s", Input: 20, Output: 3, Blocks: []uint32{0}},
			{ID: "b", Model: "m", Session: "s", Arrival: 4 * time.Second, Follows: true, DelayKnown: true, Delay: 2500 * time.Millisecond, Input: 40, Output: 3, Blocks: []uint32{0, 1}, Hints: &trace.Hints{OSL: new(uint32(9))}},
			{ID: "overlaps", Model: "m", Session: "s", Arrival: 4500 * time.Millisecond, Input: 16, Output: 3, Blocks: []uint32{0}},
			{ID: "end unknown", Model: "m", Session: "s", Arrival: 5500 * time.Millisecond, Follows: true, Delay: time.Second, Input: 17, Output: 3, Blocks: []uint32{0, 2}},
			{ID: "guess", Model: "n", Arrival: 5500 * time.Millisecond, Input: 33, Output: 1, Blocks: []uint32{}},
		},
	}
	if diff := cmp.Diff(want, readString(t, string(file))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	t.Run("cut off", func(t *testing.T) {
		got := readString(t, string(file)+`{"schema":"stator.requ`)
		if got.Skipped != (trace.Skipped{NotRun: 2, CutOff: 1}) || len(got.Requests) != 5 {
			t.Errorf("%v, %d requests", got.Skipped, len(got.Requests))
		}
	})
	t.Run("model", func(t *testing.T) {
		got, err := trace.Read(bytes.NewReader(file), trace.ReadOptions{Model: "n"})
		if err != nil || len(got.Requests) != 1 || got.Requests[0].ID != "guess" || got.Skipped.Rows() != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("previous", func(t *testing.T) {
		if diff := cmp.Diff([]int{-1, 0, -1, 2, -1}, want.Previous()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestReadDynamo(t *testing.T) {
	const file = `{"schema":"dynamo.request.trace.v1","event_type":"tool_start","event_time_unix_ms":1}
{"timestamp":1,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":9000,"agent_context":{"session_id":"s"},"request":{"request_id":"z","model":"m","output_tokens":4,"request_received_ms":3000,"total_time_ms":1000.4,"replay":{"trace_block_size":16,"input_length":20,"input_sequence_hashes":[18446744073709551615,2]}}}}
{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":6500,"agent_context":{"session_id":"s"},"request":{"request_id":"y","model":"m","output_tokens":4,"request_received_ms":6000,"replay":{"trace_block_size":16,"input_length":40,"input_sequence_hashes":[18446744073709551615,3,4]}}}
{"schema":"dynamo.request.trace.v1","event_type":"request_end","agent_context":{"session_id":"u"},"request":{"request_id":"b","output_tokens":1,"request_received_ms":3000,"total_time_ms":1,"input_tokens":17}}
{"schema":"dynamo.request.trace.v1","event_type":"request_end","agent_context":{"session_id":"t"},"request":{"request_id":"a","output_tokens":1,"request_received_ms":3000,"total_time_ms":1,"input_tokens":5}}
`
	want := &trace.Trace{
		BlockSize: 16, Format: "dynamo",
		Requests: []trace.Request{
			{ID: "a", Session: "t", Input: 5, Output: 1, Blocks: []uint32{}},
			{ID: "b", Session: "u", Input: 17, Output: 1, Blocks: []uint32{}},
			{ID: "z", Model: "m", Session: "s", Input: 20, Output: 4, Blocks: []uint32{0, 1}},
			{ID: "y", Model: "m", Session: "s", Arrival: 3 * time.Second, Follows: true, DelayKnown: true, Delay: 2 * time.Second, Input: 40, Output: 4, Blocks: []uint32{0, 2, 3}},
		},
	}
	if diff := cmp.Diff(want, readString(t, file)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReadCompressed(t *testing.T) {
	const part = `{"timestamp": 1, "output_length": 1, "hash_ids": [1, 2]}` + "\n"
	var zipped bytes.Buffer
	for range 2 { // files can be concatenated
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := enc.EncodeAll([]byte(part), enc.EncodeAll([]byte(part), nil))
	want := readString(t, part+part)
	for name, data := range map[string][]byte{"gzip": zipped.Bytes(), "zstd": frames} {
		if diff := cmp.Diff(want, readString(t, string(data))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		_, err := trace.Read(bytes.NewReader(data[:len(data)-3]), trace.ReadOptions{})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s, cut off: %v", name, err)
		}
	}
}

func TestReadLongLines(t *testing.T) {
	long := `{"timestamp": 1, "output_length": 1, "hash_ids": [1], "x": "` + strings.Repeat("x", 5<<20) + `"}` + "\n"
	if tr := readString(t, long+long); len(tr.Requests) != 2 {
		t.Errorf("%d requests", len(tr.Requests))
	}
	endless := io.MultiReader(strings.NewReader("\n{\"timestamp\": 1, \"x\": \""), io.LimitReader(spaces{}, trace.MaxLine+1))
	_, err := trace.Read(endless, trace.ReadOptions{})
	if err == nil || err.Error() != "line 2: longer than 64 MiB" {
		t.Errorf("%v", err)
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// What is written is byte for byte what was published.
func TestMooncakeRoundTrip(t *testing.T) {
	var out bytes.Buffer
	if err := trace.WriteMooncake(&out, tracetest.Conversation(t)); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %x", out.Len(), sha256.Sum256(out.Bytes()))
	if want := "3029533 b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRowsRoundTrip(t *testing.T) {
	want := tracetest.Conversation(t)
	var out bytes.Buffer
	if err := trace.WriteRows(&out, want, "m"); err != nil {
		t.Fatal(err)
	}
	got, err := trace.Read(&out, trace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Requests {
		if id := fmt.Sprint(i + 1); got.Requests[i].ID != id || got.Requests[i].Model != "m" {
			t.Fatalf("request %d is %q of %q", i, got.Requests[i].ID, got.Requests[i].Model)
		}
		got.Requests[i].ID, got.Requests[i].Model = "", ""
	}
	if len(got.Requests) != len(want.Requests) || got.BlockSize != want.BlockSize {
		t.Fatalf("%d requests of blocks of %d", len(got.Requests), got.BlockSize)
	}
	for i := range got.Requests {
		a, b := want.Requests[i], got.Requests[i]
		if !slices.Equal(a.Blocks, b.Blocks) {
			t.Fatalf("request %d: blocks %v, want %v", i, b.Blocks, a.Blocks)
		}
		a.Blocks, b.Blocks = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("request %d: %+v, want %+v", i, b, a)
		}
	}
}

// Turns and their delays survive both formats.
func TestSessionsRoundTrip(t *testing.T) {
	want := readString(t, `{"timestamp": 0, "output_length": 1, "hash_ids": [1], "session_id": "s", "request_id": "a"}
{"timestamp": 10.001, "output_length": 1, "hash_ids": [1, 2], "session_id": "s", "delay": 4.5, "request_id": "b", "priority": 3}
{"timestamp": 30, "output_length": 1, "hash_ids": [3], "session_id": "t", "request_id": "c"}
{"timestamp": 31, "output_length": 1, "hash_ids": [3, 4], "session_id": "t", "request_id": "d"}
{"timestamp": 50, "output_length": 1, "hash_ids": [1, 2, 5], "session_id": "s", "delay": 0, "request_id": "e"}
`)
	for _, format := range []string{"mooncake", "stator"} {
		got := rewrite(t, want, format)
		if diff := cmp.Diff(want.Requests, got.Requests); diff != "" {
			t.Errorf("%s: -want +got:\n%s", format, diff)
		}
	}
}

func rewrite(t *testing.T, tr *trace.Trace, format string) *trace.Trace {
	t.Helper()
	var out bytes.Buffer
	var err error
	if format == "stator" {
		err = trace.WriteRows(&out, tr, "m")
	} else {
		err = trace.WriteMooncake(&out, tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.Read(&out, trace.ReadOptions{BlockSize: tr.BlockSize})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Requests {
		got.Requests[i].Model = ""
	}
	return got
}

// A request of a session that did not wait must not seem to, in either format.
func TestOverlappingSessionRoundTrip(t *testing.T) {
	tr := &trace.Trace{BlockSize: 4, Requests: []trace.Request{
		{ID: "a", Arrival: ms(0), Input: 4, Output: 1, Blocks: []uint32{0}, Session: "s"},
		{ID: "b", Arrival: ms(1), Input: 4, Output: 1, Blocks: []uint32{0}, Session: "s"},
		{ID: "c", Arrival: ms(2), Input: 4, Output: 1, Blocks: []uint32{0}, Session: "s#2"},
		{ID: "d", Arrival: ms(9), Input: 4, Output: 1, Blocks: []uint32{0}, Session: "s", Follows: true, DelayKnown: true, Delay: ms(3)},
		{ID: "e", Arrival: ms(9), Input: 4, Output: 1, Blocks: []uint32{0}, Session: "s"},
	}}
	for _, format := range []string{"mooncake", "stator"} {
		got := rewrite(t, tr, format)
		if diff := cmp.Diff([]int{-1, -1, -1, 1, -1}, got.Previous()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", format, diff)
		}
		var names []string
		for _, r := range got.Requests {
			names = append(names, r.Session)
		}
		if want := []string{"s", "s#3", "s#2", "s#3", "s#4"}; !slices.Equal(names, want) {
			t.Errorf("%s: sessions %v, want %v", format, names, want)
		}
		if d := got.Requests[3]; d.Delay != ms(3) || !d.DelayKnown {
			t.Errorf("%s: %+v", format, d)
		}
	}
}

// On 2 cores of a shared machine:
//
//	mooncake      54 ms/op  56 MB/s  3 allocs per request
//	mooncake.zst  65 ms/op  47 MB/s
//	stator       117 ms/op  79 MB/s  5 allocs per request
func BenchmarkRead(b *testing.B) {
	conversation := tracetest.Conversation(b)
	var mooncake, rows bytes.Buffer
	if err := trace.WriteMooncake(&mooncake, conversation); err != nil {
		b.Fatal(err)
	}
	if err := trace.WriteRows(&rows, conversation, "m"); err != nil {
		b.Fatal(err)
	}
	for _, in := range []struct {
		name string
		data []byte
		size int
	}{
		{"mooncake", mooncake.Bytes(), mooncake.Len()},
		{"mooncake.zst", tracetest.ConversationFile(), mooncake.Len()},
		{"stator", rows.Bytes(), rows.Len()},
	} {
		b.Run(in.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(in.size))
			for b.Loop() {
				if _, err := trace.Read(bytes.NewReader(in.data), trace.ReadOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
