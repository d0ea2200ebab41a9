package simserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]Fault{
		"kill":                   {Kind: FaultKill, Every: 1},
		"kill:3":                 {Kind: FaultKill, Every: 3},
		"status:503":             {Kind: FaultStatus, Status: 503, Every: 1},
		"status:500:7":           {Kind: FaultStatus, Status: 500, Every: 1, Times: 7},
		"reset":                  {Kind: FaultReset, After: 1, Every: 1},
		"reset:0":                {Kind: FaultReset, Every: 1},
		"reset:4:2":              {Kind: FaultReset, After: 4, Every: 2},
		"hang:1:2":               {Kind: FaultHang, After: 1, Every: 2},
		"restart":                {Kind: FaultRestart},
		"restart:5":              {Kind: FaultRestart, Every: 5},
		"loading:1h":             {Kind: FaultLoading, For: time.Hour},
		"slow-health:10m":        {Kind: FaultSlowHealth, For: 10 * time.Minute},
		"refuse:1.5s":            {Kind: FaultRefuse, For: 1500 * time.Millisecond},
		"no-route:/metrics":      {Kind: FaultNoRoute, Path: "/metrics"},
		"wrong-block-size":       {Kind: FaultBlockSize},
		"wrong-block-size:32":    {Kind: FaultBlockSize, Size: 32},
		"drop-events:3":          {Kind: FaultDropEvents, Every: 3},
		"replay-truncated:5":     {Kind: FaultReplayTruncated, After: 5},
		string(FaultBytesHash):   {Kind: FaultBytesHash},
		string(FaultGroupEvents): {Kind: FaultGroupEvents},
	} {
		got, err := ParseFault(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
	for _, text := range []string{"", "bang", "kill:0", "kill:x", "kill:1:1", "status", "status:200", "status:9999", "reset:-1", "reset:1:0",
		"refuse", "refuse:x", "refuse:-1s", "loading:0s", "no-route", "no-route:metrics", "unhealthy:1", "wrong-block-size:0"} {
		if f, err := ParseFault(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, f)
		}
	}
}

const chatBody = `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":20,"ignore_eos":true`

// outcome sends a chat over a socket and tells what came of it: the status, the events
// before its end, and how it ended.
func outcome(t *testing.T, url string, stream bool) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	body := chatBody + fmt.Sprintf(`,"stream":%t}`, stream)
	resp, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	end := func(err error) string {
		switch {
		case err == nil:
			return "end"
		case errors.Is(err, syscall.ECONNRESET):
			return "reset"
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return "cut"
		default:
			return err.Error()
		}
	}
	if err != nil {
		return end(err)
	}
	defer resp.Body.Close()
	if !stream {
		all, err := io.ReadAll(resp.Body)
		valid := "broken"
		if s := strings.TrimSpace(string(all)); strings.HasSuffix(s, "}") && strings.Count(s, "{") == strings.Count(s, "}") {
			valid = "whole"
		}
		return fmt.Sprint(resp.StatusCode, " ", valid, " ", end(err))
	}
	events, marks := 0, ""
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		switch data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); {
		case !ok:
		case data == "[DONE]":
			marks += " done"
		case strings.HasPrefix(data, `{"error"`):
			marks += " error"
		case !strings.HasSuffix(data, "}"):
			marks += " garbled"
		default:
			events++
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return fmt.Sprint(resp.StatusCode, " ", events, marks, " ", end(err))
		}
	}
}

// TestFaultRequests has each fault strike requests over a socket.
func TestFaultRequests(t *testing.T) {
	for _, tt := range []struct {
		fault  string
		dress  Dress
		stream []string // what becomes of one request after another
		unary  []string
	}{
		{"", DressVLLM, []string{"200 21 done end"}, []string{"200 whole end"}},
		{"kill:2", Plain, []string{"200 20 done end", "reset", "200 20 done end", "reset"}, []string{"200 whole end", "reset"}},
		{"status:503:2", DressVLLM, []string{"503 0 end", "503 0 end", "200 21 done end"}, nil},
		{"status:500:1", DressSGLang, nil, []string{"500 whole end", "200 whole end"}},
		{"reset:4", Plain, []string{"200 4 reset"}, []string{"200 broken reset"}},
		{"reset:0", DressVLLM, []string{"reset"}, []string{"reset"}},
		{"half-close:3", DressSGLang, []string{"200 3 cut"}, []string{"200 broken cut"}},
		{"error:2", Plain, []string{"200 2 error done end"}, []string{"500 whole end"}},
		{"error:2", DressVLLM, []string{"200 2 error done end"}, nil},
		{"error:2", DressSGLang, []string{"200 2 error done end"}, nil},
		{"error:2", DressLlamaCpp, []string{"200 2 error end"}, nil},
		{"error:2", DressTRTLLM, []string{"200 2 cut"}, nil},
		{"garble:5", DressVLLM, []string{"200 20 garbled done end"}, []string{"200 broken end"}},
		{"garble:0:2", Plain, []string{"200 20 done end", "200 19 garbled done end"}, nil},
		{"context-length:2", DressVLLM, []string{"200 21 done end", "400 0 end"}, nil},
		{"restart:2", DressVLLM, []string{"200 21 done end", "reset", "200 21 done end", "reset"}, nil},
		{"loading:1h", DressLlamaCpp, []string{"503 0 end"}, []string{"503 whole end"}},
	} {
		t.Run(tt.fault+" "+string(tt.dress), func(t *testing.T) {
			for _, stream := range []bool{true, false} {
				s := newServer(t, modelled(Config{Dress: tt.dress}, 0, 0))
				srv := httptest.NewServer(s)
				if tt.fault != "" {
					f, err := ParseFault(tt.fault)
					if err == nil {
						err = s.Fault(f)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				want := tt.unary
				if stream {
					want = tt.stream
				}
				var got []string
				for range want {
					got = append(got, outcome(t, srv.URL, stream))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("streamed %v (-want +got):\n%s", stream, diff)
				}
				srv.Close()
				s.Close()
				if n := s.Inflight(); n != 0 {
					t.Errorf("%d requests left", n)
				}
			}
		})
	}
}

// TestFaultHang waits, in virtual time, for an answer that stops.
func TestFaultHang(t *testing.T) {
	for _, body := range []string{chatBody + `,"stream":true}`, chatBody + `}`} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, modelled(Config{Dress: DressVLLM, Faults: []Fault{{Kind: FaultHang, After: 3, Every: 1}}}, 0, 0))
			_, client := serve(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://sim/v1/chat/completions", strings.NewReader(body))
			start, events := time.Now(), 0
			resp, err := client.Do(req)
			if err == nil {
				var all []byte
				all, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				events = strings.Count(string(all), "data: ")
			}
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour || strings.Contains(body, "stream") && events != 3 {
				t.Errorf("after %v and %d events: %v", time.Since(start), events, err)
			}
			synctest.Wait()
			if n := s.Inflight(); n != 0 {
				t.Errorf("%d requests in flight", n)
			}
		})
	}
}

func TestFaultRefuse(t *testing.T) {
	s := newServer(t, Config{})
	l, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	url := "http://" + l.Addr().String()
	for range 3 {
		if got := outcome(t, url, false); got != "200 whole end" {
			t.Fatalf("before: %s", got)
		}
		if err := s.Fault(Fault{Kind: FaultRefuse, For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if got := outcome(t, url, false); !strings.Contains(got, "connection refused") {
			t.Errorf("meanwhile: %s", got)
		}
		s.Heal(FaultRefuse)
	}
	if got := outcome(t, url, false); got != "200 whole end" {
		t.Errorf("after: %s", got)
	}
	s.Fault(Fault{Kind: FaultRefuse, For: time.Hour})
	srv.Close()
	s.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("served: %v", err)
	}
}

// TestFaultServer tries what is wrong with the server as a whole.
func TestFaultServer(t *testing.T) {
	s := newServer(t, modelled(Config{Dress: DressVLLM, DevMode: true}, 0, 0))
	defer s.Close()
	change := func(body string) {
		t.Helper()
		if w := call(s, "POST", "/sim/fault", body); w.Code != 200 {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	get := func(path string) string {
		w := call(s, "GET", path, "")
		return fmt.Sprintf("%d%s", w.Code, w.Body)
	}
	for _, tt := range []struct{ fault, path, before, during string }{
		{"unhealthy", "/health", "200", "503"},
		{"no-route:/metrics", "/metrics", "200# HELP", `404{"detail":"Not Found"}`},
		{"loading:1h", "/v1/models", `200{"object"`, `503{"error":{"message":"Loading model"`},
		{"wrong-block-size", "/server_info?config_format=json", `"block_size":16,`, `"block_size":32,`},
		{"wrong-block-size:7", "/metrics", `block_size="16"`, `block_size="7"`},
	} {
		if got := get(tt.path); !strings.Contains(got, tt.before) {
			t.Errorf("%s before: %.200s", tt.fault, got)
		}
		change(`{"fault":"` + tt.fault + `"}`)
		if got := get(tt.path); !strings.Contains(got, tt.during) {
			t.Errorf("%s: %.200s, want %s", tt.fault, got, tt.during)
		}
		if got := get("/sim/fault"); !strings.Contains(got, `{"fault":"`+tt.fault+`"`) {
			t.Errorf("%s: list %s", tt.fault, got)
		}
		change(`{"clear":"` + string(mustFault(t, tt.fault).Kind) + `"}`)
		if got := get(tt.path); !strings.Contains(got, tt.before) {
			t.Errorf("%s after: %.200s", tt.fault, got)
		}
	}
	change(`{"fault":"kill:99"}`)
	change(`{"fault":"kill:9"}`)
	if w := call(s, "GET", "/sim/fault", ""); w.Body.String() != `{"faults":[{"fault":"kill:9","hits":0}]}` {
		t.Errorf("list %s", w.Body)
	}
	if w := call(s, "DELETE", "/sim/fault", ""); w.Body.String() != `{"faults":[]}` || len(s.Faults()) != 0 {
		t.Errorf("after all: %s", w.Body)
	}
	for _, body := range []string{`{}`, `{"fault":1}`, `{"fault":"bang"}`, `{"fault":"kill","clear":"kill"}`, `{"clear":"bang"}`, `[]`} {
		if w := call(s, "POST", "/sim/fault", body); w.Code != 400 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func mustFault(t *testing.T, text string) Fault {
	t.Helper()
	f, err := ParseFault(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFaultSlowHealth(t *testing.T) {
	for dress, want := range map[Dress]time.Duration{Plain: 3 * time.Second, DressSGLang: 4 * time.Second, DressLlamaCpp: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, Config{Dress: dress, Faults: []Fault{mustFault(t, "slow-health:3s")}})
			defer s.Close()
			start := time.Now()
			if w := call(s, "GET", "/health", ""); w.Code != 200 || time.Since(start) != want {
				t.Errorf("%s: %d after %v, want %v", dress, w.Code, time.Since(start), want)
			}
		})
	}
}

// TestFaultCached tries the two ways not to tell of cached tokens.
func TestFaultCached(t *testing.T) {
	s := newServer(t, modelled(Config{Dress: DressVLLM, Vocabulary: Bytes}, 0, 0))
	defer s.Close()
	ask := func() string {
		b := call(s, "POST", "/v1/chat/completions", chatBody+`}`).Body.String()
		_, b, _ = strings.Cut(b, `"prompt_tokens_details":`)
		return b
	}
	for _, tt := range []struct{ fault, want string }{
		{"", `{"cached_tokens":0}}}`},
		{"", `{"cached_tokens":16}}}`},
		{"null-cached-tokens", `{"cached_tokens":16}}}`},
		{"no-cached-tokens", `null}}`},
	} {
		if tt.fault != "" {
			s.Fault(mustFault(t, tt.fault))
		}
		if got := ask(); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.fault, got, tt.want)
		}
	}
	s.Heal("")
	s.Fault(mustFault(t, "null-cached-tokens"))
	s.Restart() // with an empty cache
	if got := ask(); got != `null}}` {
		t.Errorf("nothing cached: %s", got)
	}
}

// TestFaultEvents sees to it that the publisher hears of its faults.
func TestFaultEvents(t *testing.T) {
	s := newServer(t, modelled(Config{Publish: &PublishConfig{Listen: "127.0.0.1:0"}}, 0, 0))
	defer s.Close()
	for _, text := range []string{"drop-events:3", "no-replay", "replay-truncated:5", "duplicate-stores", "group-events", "bytes-hash", "wrong-block-size:32"} {
		if err := s.Fault(mustFault(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	want := &EventFaults{DropEvery: 3, NoReplay: true, ReplayTruncated: true, ReplayKeep: 5, DuplicateStores: true, GroupEvents: true, ByteHashes: true, BlockSize: 32}
	if diff := cmp.Diff(want, s.publisher.faults.Load()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Heal("")
	if diff := cmp.Diff(&EventFaults{}, s.publisher.faults.Load()); diff != "" {
		t.Errorf("after all (-want +got):\n%s", diff)
	}
}

// FuzzParseFault reads what was written.
func FuzzParseFault(f *testing.F) {
	for _, usage := range FaultUsage() {
		f.Add(strings.NewReplacer("[", "", "]", "", "EVERY", "3", "AFTER", "2", "CODE", "503", "TIMES", "4", "TIME", "90s", "PATH", "/x").Replace(usage))
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			return
		}
		again, err := ParseFault(fault.String())
		if err != nil || again != fault {
			t.Errorf("%q is %+v, written %q, which is %+v, %v", text, fault, fault, again, err)
		}
	})
}
