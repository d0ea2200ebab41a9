package openaihttp

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

func TestInt(t *testing.T) {
	for text, want := range map[string]Int{
		`7`: 7, `-7`: -7, `7.9`: 7, `"16"`: 16, `1e3`: 1000, `1000000000000000019884624838656`: 1 << 53, `-1e999`: -1 << 53,
		`null`: 0, `"None"`: 0, `true`: 0, `[]`: 0, `{"a":1}`: 0, `""`: 0, `"NaN"`: 0,
	} {
		var got struct{ N Int }
		if err := json.Unmarshal([]byte(`{"n":`+text+`}`), &got); err != nil || got.N != want {
			t.Errorf("%s: %d, %v, want %d", text, got.N, err, want)
		}
	}
	if Share(math.NaN()) != 0 || Share(2) != 1 || Share(-1) != 0 || Count(math.NaN()) != 0 || Count(-3) != 0 || Count(math.Inf(1)) != math.MaxInt32 {
		t.Error("a share or a count is out of its bounds")
	}
}

func TestAsk(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/odd":
			w.Write([]byte(`{"a":"text","b":2}`))
		case "/list":
			w.Write([]byte(`[1]`))
		case "/error":
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"a":1}`))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	defer e.Close()
	for path, want := range map[string]bool{"/odd": true, "/list": false, "/error": false, "/none": false} {
		type doc struct{ A, B int }
		var k Kept[doc]
		if got, _ := k.Ask(t.Context(), e, JSON[doc], path); (got != nil) != want || got != nil && got.B != 2 {
			t.Errorf("%s: %+v, want a document: %t", path, got, want)
		}
	}
}

// TestAnswers: a server that could not say is not one that has nothing.
func TestAnswers(t *testing.T) {
	rows := map[int]Answer{
		200: Told, 404: Absent, 401: Absent, 403: Absent, 405: Absent, 501: Absent,
		408: Unanswered, 429: Unanswered, 500: Unanswered, 502: Unanswered, 503: Unanswered, 504: Unanswered,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
		w.Write([]byte("text"))
	}))
	e := open(t, srv.URL).(*Engine)
	defer e.Close()
	for status, want := range rows {
		doc, got := e.AskFor(t.Context(), "/"+strconv.Itoa(status))
		if got != want || (doc != nil) != (want == Told) {
			t.Errorf("%d: %q, %d, want %d", status, doc, got, want)
		}
	}
	srv.Close()
	if _, got := e.AskFor(t.Context(), "/200"); got != Unanswered {
		t.Errorf("no connection: %d", got)
	}
	synctest.Test(t, func(t *testing.T) {
		var theirs []net.Conn
		e, err := New(Config{URL: "http://h", Dial: func(context.Context) (net.Conn, error) {
			ours, other := net.Pipe()
			theirs = append(theirs, other)
			go io.Copy(io.Discard, other)
			return ours, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, got := e.AskFor(t.Context(), "/200"); got != Unanswered {
			t.Errorf("no answer: %d", got)
		}
		for _, c := range theirs {
			c.Close()
		}
	})
}

// TestKept: what is not answered is as it was, and what is not there is gone.
func TestKept(t *testing.T) {
	type doc struct{ A int }
	status, body := 200, ""
	older := 404
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/older" {
			w.WriteHeader(older)
			io.WriteString(w, `{"a":9}`)
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	defer srv.Close()
	e := open(t, srv.URL).(*Engine)
	defer e.Close()
	var k Kept[doc]
	for i, row := range []struct {
		status int
		body   string
		older  int
		want   *doc
		answer Answer
	}{
		{503, "", 404, nil, Unanswered},
		{200, `{"a":1}`, 404, &doc{1}, Told},
		{503, `{"a":2}`, 200, &doc{1}, Unanswered},
		{404, "", 500, &doc{1}, Unanswered},
		{404, "", 200, &doc{9}, Told},
		{200, `[]`, 200, &doc{9}, Told},
		{200, `[]`, 404, nil, Absent},
		{503, "", 404, nil, Unanswered},
		{200, `{"a":3}`, 404, &doc{3}, Told},
		{404, "", 404, nil, Absent},
	} {
		status, body, older = row.status, row.body, row.older
		got, answer := k.Ask(t.Context(), e, JSON[doc], "/newer", "/older")
		if diff := cmp.Diff(row.want, got); diff != "" || answer != row.answer {
			t.Errorf("%d: answer %d (-want +got):\n%s", i, answer, diff)
		}
	}
	status, body = 200, `{"a":1}`
	k.Ask(t.Context(), e, JSON[doc], "/newer")
	k.Forget()
	status = 503
	if got, _ := k.Ask(t.Context(), e, JSON[doc], "/newer"); got != nil {
		t.Errorf("forgotten, and yet %+v", got)
	}
}

// TestManyModels: of a long list the beginning is taken, and the rest costs nothing.
func TestManyModels(t *testing.T) {
	doc := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, doc) }))
	defer srv.Close()
	e := open(t, srv.URL)
	defer e.Close()
	card := `{"id":"m","more":"` + strings.Repeat("x", 100) + `"}`
	for name, row := range map[string]struct {
		doc     string
		models  int
		warning bool
	}{
		"as many as are taken":     {`{"data":[` + strings.Repeat(card+",", MaxListed-1) + card + `],"object":"list"}`, MaxListed, false},
		"one more":                 {`{"object":"list","data":[` + strings.Repeat(card+",", MaxListed) + card + `]}`, MaxListed, true},
		"more than is read":        {`{"data":[` + strings.Repeat(card+",", maxDocument/100) + card + `]}`, MaxListed, true},
		"elements without meaning": {`{"models":[[],{}],"data":[7,null,{"id":5},` + card + `]}`, 1, false},
	} {
		doc = row.doc
		info, err := e.Identify(t.Context())
		if err != nil || len(info.Models) != row.models || slices.Contains(info.Warnings, TooMany) != row.warning {
			t.Errorf("%s: %v, %+v", name, err, info)
		}
	}
	for _, bad := range []string{``, `[]`, `{"data":[{"id":"m"}`, `{"data":[{"id":"m"}]`, `{"data":{}}`, `{"data":"m"}`, `{"data":null}`, `{"data":[{"id":}]}`} {
		doc = bad
		if info, err := e.Identify(t.Context()); err == nil {
			t.Errorf("%s: %+v", bad, info)
		}
	}
	empty := []byte(`{"data":[` + strings.Repeat("{},", maxDocument/3-10) + `{}]}`)
	if n := testing.AllocsPerRun(1, func() { readCards(empty) }); n > 10*MaxListed {
		t.Errorf("%.0f allocations for a list of nothing", n)
	}
}

// TestSendOptional: only a request that is found faulty for what is optional is sent
// again, and only if that helped is it left out from then on.
func TestSendOptional(t *testing.T) {
	for name, row := range map[string]struct {
		with, without int // statuses
		said          string
		want, sent    int
		refused       bool
	}{
		"understood":            {200, 200, "budget", 200, 1, false},
		"refused":               {400, 200, "unknown: budget", 200, 2, true},
		"refused otherwise":     {422, 201, "unknown: budget", 201, 2, true},
		"another fault":         {400, 200, "no messages", 400, 1, false},
		"several faults":        {400, 400, "budget and messages", 400, 2, false},
		"without it overloaded": {400, 503, "budget", 503, 2, false},
		"overloaded":            {503, 200, "budget exceeded", 503, 1, false},
		"failed":                {500, 200, "budget", 500, 1, false},
		"not allowed":           {403, 200, "budget", 403, 1, false},
	} {
		sent := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent++
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "budget") {
				w.WriteHeader(row.with)
			} else {
				w.WriteHeader(row.without)
			}
			io.WriteString(w, row.said)
		}))
		e := open(t, srv.URL).(*Engine)
		o, _ := openai.ParseObject([]byte(`{}`))
		var refused atomic.Bool
		resp, err := e.SendOptional(t.Context(), engine.Target{Worker: 1}, &engine.Request{Path: "/v1/completions", Body: &o}, nil,
			openai.Edit{Key: "budget", Value: []byte("1")}, &refused)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.Status != row.want || sent != row.sent || refused.Load() != row.refused || string(said) != row.said {
			t.Errorf("%s: status %d, sent %d times, refused %t, said %q", name, resp.Status, sent, refused.Load(), said)
		}
		e.Close()
		srv.Close()
	}
}

// TestModelsOfAdapters: an adapter has the context of its model.
func TestModelsOfAdapters(t *testing.T) {
	got := Models([]Card{{ID: "sql", Parent: "m"}, {ID: "m", MaxModelLen: 4096}, {ID: "law", Parent: "gone"}, {ID: "x", MaxModelLen: -5}})
	want := []engine.Model{{ID: "sql", Parent: "m", ContextLength: 4096}, {ID: "m", ContextLength: 4096}, {ID: "law", Parent: "gone"}, {ID: "x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzCards(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096,"stator":{"ranks":1e9}}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		list, err := readCards(doc)
		if err != nil {
			return
		}
		for _, m := range (&Engine{}).Describe(t.Context(), list.Items).Models {
			if m.ContextLength < 0 || m.Ranks < 0 || m.Ranks > maxRanks {
				t.Errorf("%+v", m)
			}
		}
	})
}
