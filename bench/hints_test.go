package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHintBodies(t *testing.T) {
	const size = 60_000
	bodies, err := hintBodies(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string][2]float64{"source files": {0.08, 0.3}, "prose": {0.001, 0.03}}
	for _, b := range bodies {
		if len(b.data) < size || len(b.data) > size*5/4 {
			t.Errorf("%s: %d bytes, want %d or a few more", b.name, len(b.data), size)
		}
		if want, ok := shares[b.name]; !ok || b.escaped < want[0] || b.escaped > want[1] {
			t.Errorf("%s: %.3f is in escapes, want %v", b.name, b.escaped, want)
		}
		var chat struct{ Messages []agentMessage }
		if err := json.Unmarshal(b.data, &chat); err != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
		roles := map[string]bool{}
		for _, m := range chat.Messages {
			roles[m.Role] = true
			for _, c := range m.ToolCalls {
				if !json.Valid([]byte(c.Function.Arguments)) {
					t.Errorf("%s: arguments %.80q", b.name, c.Function.Arguments)
				}
			}
		}
		want := map[string]bool{"user": true, "assistant": true}
		if b.name == "source files" {
			want["system"], want["tool"] = true, true
			if chat.Messages[0].Role != "system" || chat.Messages[1].Role != "user" {
				t.Errorf("%s begins with %s and %s", b.name, chat.Messages[0].Role, chat.Messages[1].Role)
			}
			for _, part := range []string{`\n`, `\"`, `\\n`, `\u`} {
				if !bytes.Contains(b.data, []byte(part)) {
					t.Errorf("%s: no %s", b.name, part)
				}
			}
			if bytes.IndexFunc(b.data, isCJK) < 0 {
				t.Errorf("%s: all of it is ASCII", b.name)
			}
		}
		if diff := cmp.Diff(want, roles); diff != "" {
			t.Errorf("%s: roles (-want +got)\n%s", b.name, diff)
		}
		if err := b.simple(); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
}

func TestEscapes(t *testing.T) {
	for _, test := range []struct {
		in, ascii string
		bytes     int // in escapes, of ascii
	}{
		{`"plain"`, `"plain"`, 0},
		{`"a\nb\"c\\"`, `"a\nb\"c\\"`, 6},
		{`"é"`, `"\u00e9"`, 6},
		{`"\\u00e9"`, `"\\u00e9"`, 2},
		{`"😀\t"`, `"\ud83d\ude00\t"`, 14},
	} {
		ascii := asciiJSON([]byte(test.in))
		if string(ascii) != test.ascii || escapeBytes(ascii) != test.bytes {
			t.Errorf("%s: got %s with %d bytes in escapes, want %s with %d", test.in, ascii, escapeBytes(ascii), test.ascii, test.bytes)
		}
	}
}

func TestCheckHinted(t *testing.T) {
	const body = `{"model":"m"}`
	for _, test := range []struct {
		sent string
		ok   bool
	}{
		{`{"model":"m","nvext":{"agent_hints":{"prefix_id":"a-d0"}}}`, true},
		{body, false},
		{`{"model":"n","nvext":{"agent_hints":{"prefix_id":"a-d0"}}}`, false},
		{`{"model":"m" "nvext":{"agent_hints":{"prefix_id":"a-d0"}}}`, false},
		{`{"model":"m","nvext":{"agent_hints":{"prefix_id":"a-d0"}}`, false},
		{`{"model":"m","nvext":{"agent_hints":{}}}`, false},
	} {
		if err := checkHinted([]byte(body), []byte(test.sent)); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.sent, err)
		}
	}
}

func TestHintSink(t *testing.T) {
	req, err := newHintRequest(t.Context(), []byte("12345"))
	if err != nil {
		t.Fatal(err)
	}
	var to strings.Builder
	s := &hintSink{to: &to}
	if _, err := s.RoundTrip(req); err != nil || to.String() != "12345" {
		t.Errorf("got %q, %v", &to, err)
	}
	req.Body = io.NopCloser(strings.NewReader("123"))
	if _, err := s.RoundTrip(req); err == nil || err.Error() != "body: expected 5 bytes, got 3" {
		t.Errorf("a short body: %v", err)
	}
	req.Body = io.NopCloser(io.LimitReader(strings.NewReader("12345"), 5))
	if _, err := s.RoundTrip(req); err == nil || !strings.HasPrefix(err.Error(), "body: expected one that can write itself") {
		t.Errorf("a body that has to be read: %v", err)
	}
}

func TestHintRows(t *testing.T) {
	var r report
	err := measureHintsOf(t.Context(), options{rounds: 1, log: io.Discard}, &r, hintScale{body: 20_000, calls: 2, prefixes: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 4 || len(r.notes) != 3 {
		t.Errorf("%d rows and %d notes", len(r.rows), len(r.notes))
	}
	var out strings.Builder
	if err := r.write(&out); err != nil || strings.Contains(out.String(), "%!") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v\n%s", err, &out)
	}
}
