package frontend

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// FuzzBody sends arbitrary bytes as a chat request. Whatever they are, the server
// answers in a known way, keeps nothing, and changes nothing of what it passes on
// apart from nvext.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		hello,
		`{"stream":true,"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`,
		`{"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"n":2,"stream":true,"stream_options":{"include_usage":true},"nvext":{"annotations":["request_id","token_ids","formatted_prompt"],"extra_fields":["timing","worker_id","routing"]}}`,
		`{"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"nvext":{"annotations":["query_instance_id:"],"token_data":[1,2]}}`,
		`{"nvext":{},"model":"stator-sim","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"nvext":{"backend_instance_id":1,"dp_rank":0}}`,
		`{"model":"stator-sim","messages":[{"role":"user","content":"hi"}],"nvext":{"allowed_worker_ids":[7],"agent_hints":{"priority":-1,"iat":[]}}}`,
		`{"m\u006fdel":"stator-sim","model":"other","messages":[{}],"stop":["a",""],"max_tokens":-1}`,
		`{"model":"stator-sim","messages":[{"role":"user","content":"\ud800"}],"max_tokens":18446744073709551616}`,
		`{"model":"stator-sim","messages":[],"stream":1}`,
		"{\"model\":\"stator-sim\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
		`{"model":"stator-sim","messages":[[[[[[`,
		`{}`, `[]`, `null`, ``, "\ufeff{}", `{"model":"stator-sim"}}`,
	} {
		f.Add([]byte(body))
	}
	var engine lastBody
	var rows rowLog
	rg := newRig(f, rigConfig{sim: simserver.Config{ContextLength: 96}, fault: engine.serve, front: Config{Trace: &rows, TraceText: true}})
	statuses := []int{200, 400, 404, 503}
	f.Fuzz(func(t *testing.T, body []byte) {
		engine.take()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		rg.ServeHTTP(w, r)

		if !slices.Contains(statuses, w.Code) {
			t.Errorf("status %d is not one of %v", w.Code, statuses)
		}
		answer := w.Body.Bytes()
		switch kind := w.Header().Get("Content-Type"); {
		case w.Code != http.StatusOK:
			checkErrorBody(t, answer)
		case kind == "text/event-stream":
			checkStream(t, string(answer))
		case kind == "application/json":
			if !json.Valid(answer) {
				t.Errorf("the answer is not JSON: %s", answer)
			}
		default:
			t.Errorf("content type %q", kind)
		}
		if id := w.Header().Get("Request-Id"); !isUUID(id) {
			t.Errorf("request id %q", id)
		}
		sent := engine.take()
		if sent != nil {
			checkForwarded(t, body, sent)
		}
		checkRow(t, rows.take(), w.Code, sent == nil && w.Code == http.StatusOK)
		if n := rg.booked(); n != 0 {
			t.Errorf("%d slots still booked", n)
		}
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%d body bytes still held", n)
		}
	})
}

// checkRow checks what a request with that status left in the trace: a row that
// can be written and read, or nothing if it only asked.
func checkRow(t *testing.T, rows []*trace.Row, status int, asked bool) {
	t.Helper()
	if asked && len(rows) == 0 {
		return
	}
	if len(rows) != 1 || asked {
		t.Fatalf("%d rows, asked only: %v", len(rows), asked)
	}
	line, err := rows[0].AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var back trace.Row
	if err := json.Unmarshal(line, &back); err != nil || back.Status != status || back.Outcome == "" {
		t.Errorf("status %d, read %v: %s", status, err, line)
	}
}

// lastBody remembers the body that an engine was sent.
type lastBody struct {
	mu   sync.Mutex
	body []byte
}

func (l *lastBody) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	l.mu.Lock()
	l.body = body
	l.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	next.ServeHTTP(w, r)
}

// take returns the body and forgets it.
func (l *lastBody) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	body := l.body
	l.body = nil
	return body
}

func checkErrorBody(t *testing.T, body []byte) {
	t.Helper()
	var e struct {
		Error struct {
			Message, Type string
			Code          any
		}
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == nil {
		t.Errorf("not an error body (%v): %s", err, body)
	}
}

func checkStream(t *testing.T, body string) {
	t.Helper()
	if !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream has no end: %q", body)
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		for line := range strings.SplitSeq(event, "\n") {
			data, isData := strings.CutPrefix(line, "data: ")
			note, isNote := strings.CutPrefix(line, ": ")
			switch {
			case strings.HasPrefix(line, "event: "), data == "[DONE]":
			case isData && json.Valid([]byte(data)), isNote && json.Valid([]byte(note)):
			default:
				t.Errorf("a line of the stream is none: %q", line)
			}
		}
	}
}

// checkForwarded compares what the engine got with what the client sent, as a
// parser reads them for which the last of duplicate keys counts.
func checkForwarded(t *testing.T, from, to []byte) {
	t.Helper()
	var want, got map[string]json.RawMessage
	if json.Unmarshal(from, &want) != nil {
		return // escapes inside strings are the engine's business
	}
	if err := json.Unmarshal(to, &got); err != nil {
		t.Errorf("the engine got what is not JSON: %v\n%s", err, to)
	}
	delete(want, "nvext")
	for _, body := range []map[string]json.RawMessage{want, got} {
		if string(body["stream"]) == "true" {
			delete(body, "stream_options") // asks for the usage
		}
		if salt := openai.Value(body["cache_salt"]); salt.Kind() == '"' {
			text, _ := salt.Text()
			body["cache_salt"] = openai.AppendString(nil, text) // spelled anew
		}
	}
	if !maps.EqualFunc(want, got, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		t.Errorf("the client sent %s\nthe engine got %s", from, to)
	}
}

// FuzzHeaders sends arbitrary values in the headers that route and hint. They
// never cause a failure of the server, and never another worker than without them
// unless they name one that exists.
func FuzzHeaders(f *testing.F) {
	f.Add("", "", "", "", "", "")
	f.Add("2", "", "", "", "5", "LOW")
	f.Add("2", "3", "0", "1", "-5", "0.5")
	f.Add("99", "abc", "4294967295", "-1", "urgent", "NaN")
	f.Add("18446744073709551616", "18446744073709551615", "1", "\x00", "+1", "1e999")
	f.Add(" 3 ", "+3", "0x0", "00", "é", "Bearer x")
	f.Add("3", "", "7", "\xff", "2147483648", strings.Repeat("9", 300))

	const engines = 3
	rg := newRig(f, rigConfig{engines: engines, router: router.Config{Mode: router.RoundRobin}})
	// A query takes no turn, so that without a pin it is always told of worker 1.
	const unpinned = 1
	body := strings.Replace(hello, "{", `{"nvext":{"annotations":["query_instance_id:"]},`, 1)
	f.Fuzz(func(t *testing.T, worker, alias, rank, prefill, priority, hint string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		set := func(value string, names ...string) {
			for _, name := range names {
				r.Header[name] = []string{value}
			}
		}
		set("application/json", "Content-Type")
		set(worker, nvext.HeaderDynamoWorkerInstanceID)
		set(alias, nvext.HeaderWorkerInstanceID)
		set(rank, nvext.HeaderDPRank)
		set(prefill, nvext.HeaderPrefillInstanceID, nvext.HeaderPrefillDPRank)
		set(priority, nvext.HeaderRequestPriority, nvext.HeaderRequestStrictPriority)
		set(hint, nvext.HeaderTenantID, nvext.HeaderSessionID, nvext.HeaderSessionFinal, nvext.HeaderClaudeCodeSessionID,
			nvext.HeaderPrefixID, nvext.HeaderPrefixTotalRequests, nvext.HeaderPrefixOSL, nvext.HeaderPrefixIAT,
			nvext.HeaderPrefixLatencySensitivity, nvext.HeaderNATRemainingLLMCalls, nvext.HeaderNATInterArrivalMS,
			nvext.HeaderNATExpectedOutputTokens, nvext.HeaderMetaPrefix+"Note", headerRequestID, headerXRequestID, headerTraceparent)
		w := httptest.NewRecorder()
		rg.ServeHTTP(w, r)

		want := uint64(unpinned)
		pin, pinned := firstUint(64, worker, alias)
		if pinned {
			want = pin
		}
		dpRank, ranked := firstUint(32, rank)
		switch {
		case len(hint) > nvext.MaxMetaBytes-100:
			return // too large is another matter
		case pinned && (pin < 1 || pin > engines || ranked && dpRank != 0):
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"worker_not_found"`) {
				t.Errorf("pinned to worker %d: status %d, body %s", pin, w.Code, w.Body)
			}
			return
		case w.Code != http.StatusOK:
			t.Fatalf("status %d, body %s", w.Code, w.Body)
		}
		var answer struct{ NvExt nvext.Response }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.NvExt.WorkerID == nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if got := *answer.NvExt.WorkerID.DecodeWorkerID; got != want {
			t.Errorf("got worker %d, want %d", got, want)
		}
	})
}

// firstUint returns the first of the values that is an unsigned decimal number.
func firstUint(bits int, values ...string) (uint64, bool) {
	for _, s := range values {
		if n, err := strconv.ParseUint(strings.TrimSpace(s), 10, bits); err == nil {
			return n, true
		}
	}
	return 0, false
}

// FuzzRouterService sends arbitrary messages to the router service. Whatever they
// are, the answer is JSON with a known status, and no memory is kept.
func FuzzRouterService(f *testing.F) {
	for _, body := range []string{
		`{"method":"new","tokens":[1,2],"block_mm_infos":[null]}`,
		`{"method":"new","tokens":[1,2,3],"request_id":"a","block_mm_infos":[{"mm_objects":[{"mm_hash":18446744073709551615}]},null],"lease_secs":1e-9}`,
		`{"method":"new","token_ids":[],"cache_namespace":"x","lora_name":"y","priority_jump":1e999,"strict_priority":1,"expected_output_tokens":4294967295,"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":1}}}`,
		`{"method":"mark_prefill","request_id":"a"}`, `{"method":"mark_free","model":"stator-sim","request_id":"a"}`, `{"method":"renew"}`,
		`{"method":"potential_loads","tokens":[0,4294967295]}`, `{"method":"","tokens":{}}`, `[]`, `{"method":"new","tokens":[[1]]}`, "{\"method\":\"\xff\"}",
	} {
		f.Add(body)
	}
	rg := newRig(f, rigConfig{engines: 2, sim: simserver.Config{BlockSize: 2}})
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/router", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		rg.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("not JSON: %q", w.Body)
		}
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%d bytes still held", n)
		}
	})
}
