package hintproxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/hintproxy"
)

// seen is a request as it arrives, or an answer.
type seen struct {
	Line    string
	Header  http.Header
	Trailer http.Header
	Length  int64
	Chunked bool
	Body    string
}

// digest reads to the end and returns what it was, by its hash if it is long.
func digest(r io.Reader) (string, error) {
	sum := sha256.New()
	var head bytes.Buffer
	_, err := io.Copy(io.MultiWriter(sum, &limited{&head}), r)
	if head.Len() < 1024 {
		return head.String(), err
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// limited takes the first kilobyte.
type limited struct{ *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), 1024-l.Len())])
	return len(p), nil
}

func gzipped(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return out.Bytes()
}

// unknown hides how long a reader is.
type unknown struct{ io.Reader }

// TestUntouched sends requests that carry no hints to a server, directly and through the
// proxy, and compares what the server saw and what the client got.
func TestUntouched(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	part, err := parts.CreateFormFile("file", "speech.wav")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(bytes.Repeat([]byte{0, 1, 2, 255}, 100_000))
	if err := parts.Close(); err != nil {
		t.Fatal(err)
	}
	huge := func() io.Reader {
		return io.MultiReader(strings.NewReader(`{"a":"`), io.LimitReader(filler{}, hints.DefaultMaxBody), strings.NewReader(`"}`))
	}
	for _, tt := range []struct {
		name, method, path string
		header             http.Header
		trailer            string
		length             int64
		body               func() io.Reader
		reason             string
	}{
		{"models", "GET", "/v1/models", http.Header{"Accept-Encoding": {"gzip, br"}}, "", 0, nil, "unmatched"},
		{"delete", "DELETE", "/v1/files/f1", nil, "", 0, nil, "unmatched"},
		{"head", "HEAD", "/v1/models", nil, "", 0, nil, "unmatched"},
		{"embeddings", "POST", "/v1/embeddings", http.Header{"Content-Type": {"application/json"}}, "", 13,
			func() io.Reader { return strings.NewReader(`{"input":"a"}`) }, "unmatched"},
		{"multipart", "POST", "/v1/audio/transcriptions", http.Header{"Content-Type": {parts.FormDataContentType()}}, "", int64(form.Len()),
			func() io.Reader { return bytes.NewReader(form.Bytes()) }, "unmatched"},
		{"form to a chat", "POST", "/v1/chat/completions", http.Header{"Content-Type": {"text/plain"}}, "", 2,
			func() io.Reader { return strings.NewReader(`{}`) }, "unmatched"},
		{"upload of unknown length", "PUT", "/v1/files/f1", nil, "", -1, func() io.Reader { return unknown{bytes.NewReader(form.Bytes())} }, "unmatched"},
		{"trailers", "POST", "/v1/uploads", nil, "X-Sum", -1, func() io.Reader { return unknown{strings.NewReader("abc")} }, "unmatched"},
		{"trailers of a chat", "POST", "/v1/chat/completions", nil, "X-Sum", -1, func() io.Reader { return unknown{strings.NewReader("{}")} }, "streamed"},
		{"gzip", "POST", "/v1/chat/completions", http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, "", int64(len(gzipped(`{"model":"m"}`))),
			func() io.Reader { return bytes.NewReader(gzipped(`{"model":"m"}`)) }, "sealed"},
		{"no JSON", "POST", "/v1/chat/completions", http.Header{"Content-Type": {"application/json"}}, "", 9,
			func() io.Reader { return strings.NewReader(`{"model":`) }, "not_json"},
		{"array", "POST", "/v1/completions", nil, "", 4, func() io.Reader { return strings.NewReader(`[{}]`) }, "not_json"},
		{"empty", "POST", "/v1/completions", nil, "", 0, nil, "empty"},
		{"huge", "POST", "/v1/chat/completions", nil, "", hints.DefaultMaxBody + 8, huge, "large"},
		{"huge, of unknown length", "POST", "/v1/chat/completions", nil, "", -1, huge, "large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests := make(chan seen, 2)
			p := start(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := digest(r.Body)
				if err != nil {
					t.Errorf("body: %v", err)
				}
				requests <- seen{r.Method + " " + r.RequestURI, r.Header, r.Trailer, r.ContentLength, slices.Contains(r.TransferEncoding, "chunked"), body}
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Add("X-Many", "1")
				w.Header().Add("X-Many", "2")
				w.Header().Set("Date", "now")
				if tt.method != http.MethodHead { // whose answer has none
					w.Header().Set("Trailer", "X-Cost")
				}
				w.WriteHeader(http.StatusTeapot)
				_, _ = w.Write(gzipped("no tea"))
				w.Header().Set("X-Cost", "3")
			}, nil)
			send := func(base string) seen {
				req, err := http.NewRequest(tt.method, base+tt.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if tt.body != nil {
					req.Body, req.ContentLength = io.NopCloser(tt.body()), tt.length
				}
				for name, v := range tt.header {
					req.Header[name] = v
				}
				if tt.trailer != "" {
					req.Trailer = http.Header{tt.trailer: {"42"}}
				}
				resp, err := newClient(t).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := digest(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return seen{resp.Status, resp.Header, resp.Trailer, resp.ContentLength, slices.Contains(resp.TransferEncoding, "chunked"), body}
			}
			directly := send(p.upstream)
			wanted := <-requests
			through := send(p.url)
			got := <-requests
			delete(got.Header, "Via")
			if d := cmp.Diff(wanted, got); d != "" {
				t.Errorf("request (-directly +through the proxy):\n%s", d)
			}
			if d := cmp.Diff(directly, through); d != "" {
				t.Errorf("answer (-directly +through the proxy):\n%s", d)
			}
			if d := cmp.Diff(map[string]uint64{tt.reason: 1}, p.Stats().Hints.Untouched); d != "" {
				t.Errorf("untouched (-want +got):\n%s", d)
			}
		})
	}
}

// filler is text without an end.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a' + byte(i%23)
	}
	return len(p), nil
}

func TestStreamPassesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		protocol func(*http.Protocols)
		major    int
		kind     string
	}{
		{"HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }, 1, "text/event-stream"},
		{"HTTP/2", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, 2, "text/event-stream"},
		{"not called events", func(p *http.Protocols) { p.SetHTTP1(true) }, 1, "application/x-ndjson"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			read := make(chan bool)
			p := start(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				for i := range 3 {
					fmt.Fprintf(w, "data: %d\n\n", i)
					_ = http.NewResponseController(w).Flush()
					<-read // nothing more until this has arrived
				}
			}, func(c *hintproxy.Config) { c.Record = t.TempDir() + "/spans.jsonl" })
			client := newClient(t)
			tr := client.Transport.(*http.Transport)
			tr.Protocols = new(http.Protocols)
			tt.protocol(tr.Protocols)
			resp, err := client.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.ProtoMajor != tt.major {
				t.Errorf("protocol %s", resp.Proto)
			}
			lines := bufio.NewReader(resp.Body)
			for i := range 3 {
				event := make([]byte, len("data: 0\n\n"))
				if _, err := io.ReadFull(lines, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", i) {
					t.Fatalf("event %d: %q, %v", i, event, err)
				}
				read <- true
			}
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("after the last event: %q, %v", rest, err)
			}
		})
	}
}

func TestClientLeaves(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer begun %t", begun), func(t *testing.T) {
			asked, left := make(chan bool), make(chan bool)
			p := start(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				if begun {
					_, _ = io.WriteString(w, "data: 1\n\n")
					_ = http.NewResponseController(w).Flush()
				}
				close(asked)
				<-r.Context().Done()
				close(left)
			}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/completions", strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				resp, err := newClient(t).Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
			<-asked
			cancel()
			<-left
			if err := <-done; err == nil {
				t.Error("the client saw a whole answer")
			}
			eventually(t, "count of clients that left", func() bool { return p.Stats().Left == 1 && p.Stats().InFlight == 0 })
			if s := p.Stats(); s.Broken != 0 || s.UpstreamErrors != 0 {
				t.Errorf("the upstream is blamed: %+v", s)
			}
		})
	}
}

func TestUpstreamDiesMidStream(t *testing.T) {
	die := make(chan bool)
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-die
		panic(http.ErrAbortHandler)
	}, nil)
	resp, err := newClient(t).Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	close(die)
	if rest, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF {
		t.Errorf("after the break: %q, %v, want an unexpected end", rest, err)
	}
	eventually(t, "count of broken answers", func() bool { return p.Stats().Broken == 1 })
	if log := p.logged.String(); !strings.Contains(log, "level=WARN msg=\"the upstream broke off an answer\" upstream="+p.upstream+" path=/v1/completions") {
		t.Errorf("log: %s", log)
	}
}

func TestExpectContinue(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
		t.Run(path, func(t *testing.T) {
			p := start(t, echo, nil)
			conn := dial(t, p.url)
			r := bufio.NewReader(conn)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", path)
			if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if _, err := r.Discard(2); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "{}")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !strings.HasPrefix(string(body), "{") {
				t.Errorf("%d %q, %v", resp.StatusCode, body, err)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		p := start(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too much", http.StatusRequestEntityTooLarge)
		}, nil)
		conn := dial(t, p.url)
		fmt.Fprint(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d, want the upstream's refusal before the body", resp.StatusCode)
		}
	})
}

func TestUpgrade(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
			t.Errorf("headers: %v", r.Header)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	}, nil)
	conn := dial(t, p.url)
	fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, message := range []string{"ping", "pong"} {
		fmt.Fprint(conn, message)
		got := make([]byte, 4)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != message {
			t.Errorf("%q, %v, want %q", got, err, message)
		}
	}
}

// TestBodyAndAnswerAtOnce has an answer come while the body is still being sent.
func TestBodyAndAnswerAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		header     http.Header
		trailer    http.Header
		length     int64
		calls      uint64 // that are recorded
	}{
		{"no call", "/v1/audio/stream", http.Header{"Content-Type": {"audio/wav"}}, nil, -1, 0},
		{"compressed", "/v1/chat/completions", http.Header{"Content-Encoding": {"gzip"}}, nil, -1, 1},
		{"signed", "/v1/chat/completions", http.Header{"Signature": {"s=::"}}, nil, 12, 1},
		{"with trailers", "/v1/chat/completions", nil, http.Header{"X-Sum": {"42"}}, -1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testBodyAndAnswerAtOnce(t, tt.path, tt.header, tt.trailer, tt.length, tt.calls)
		})
	}
}

func testBodyAndAnswerAtOnce(t *testing.T, path string, header, trailer http.Header, length int64, calls uint64) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		for buf := make([]byte, 4); ; {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
			_, _ = w.Write(buf)
			_ = rc.Flush()
		}
	}, func(c *hintproxy.Config) { c.Record = filepath.Join(t.TempDir(), "spans.jsonl") })
	body, send := io.Pipe()
	late := time.AfterFunc(patience, func() { _ = send.CloseWithError(context.DeadlineExceeded) }) // which the client waits for
	defer late.Stop()
	req, err := http.NewRequest(http.MethodPost, p.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.Trailer = length, trailer
	maps.Copy(req.Header, header)
	first := make(chan error, 1)
	go func() {
		_, err := io.WriteString(send, "ping")
		first <- err
	}()
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for _, next := range []string{"pong", "pang", ""} {
		got := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatalf("before %q: %v", next, err)
		}
		if next == "" {
			break
		}
		if _, err := io.WriteString(send, next); err != nil {
			t.Fatal(err)
		}
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("the rest: %q, %v", rest, err)
	}
	eventually(t, "recording", func() bool { s := p.Stats().Record; return s.Written+s.Waiting == calls })
}

func TestInformationalAnswersPass(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	}, nil)
	conn := dial(t, p.url)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestUpstreamCertificate(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	upstream.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	upstream.StartTLS()
	defer upstream.Close()
	for _, verify := range []bool{true, false} {
		p := startBefore(t, upstream.URL, func(c *hintproxy.Config) { c.Hints.VerifySSL = verify })
		code, body := post(t, p.url, `{}`)
		if verify && (code != http.StatusBadGateway || !strings.Contains(body, "certificate")) || !verify && code != http.StatusOK {
			t.Errorf("verify %t: %d %s", verify, code, body)
		}
	}
}
