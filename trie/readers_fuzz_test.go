package trie

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fuzzReader: nothing makes a reader panic, it holds no more than there is in its input,
// and its answer does not depend on how the input comes.
func fuzzReader(f *testing.F, read reader) {
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAll(read, bytes.NewReader(data))
		steps := 0
		for _, run := range got {
			steps += len(run)
		}
		if 2*len(data) < steps {
			t.Errorf("%d steps of %d bytes", steps, len(data))
		}
		for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data))} {
			again, againErr := readAll(read, r)
			if text(err) != text(againErr) {
				t.Fatalf("%v, in pieces %v", err, againErr)
			}
			if diff := cmp.Diff(got, again, cmpopts.EquateNaNs()); diff != "" {
				t.Fatalf("-at once +in pieces:\n%s", diff)
			}
		}
		Sniff(data)
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzReadNAT(f *testing.F) {
	f.Add([]byte(`[{"request_number":0,"intermediate_steps":[{"parent_id":"F","function_ancestry":{"function_id":"F","function_name":"a","parent_id":null},"payload":{"event_type":"LLM_END","event_timestamp":1.5,"data":{"input":"h\n"},"UUID":"u"}}]}]`))
	f.Add([]byte(`{"intermediate_steps":[{"parent_id":"\ud83d\ude00\ud800","payload":{"event_type":"LLM_END","event_timestamp":-1.5e3,"span_event_timestamp":NaN,"usage_info":{"token_usage":{"completion_tokens":3}}}}]}[]`))
	fuzzReader(f, ReadNAT)
}

func FuzzReadNATCSV(f *testing.F) {
	f.Add([]byte("event_type,event_timestamp,example_number,UUID\nLLM_START,1,0,u\nLLM_END,2,1,u\nLLM_END,3,0,u\n"))
	fuzzReader(f, ReadNATCSV)
}

func FuzzReadSpans(f *testing.F) {
	f.Add([]byte(`{"run_id":"r","span_id":"1","kind":"llm","path":["a","b"],"start":1000.25,"end":"2026-03-01T12:00:00Z","completion_tokens":5}
{"run_id":"s","kind":"tool","start":1,"end":0}
{"run_id":"r","ki`))
	fuzzReader(f, ReadSpans)
}
