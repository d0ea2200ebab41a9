package frontend

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata/golden")

// TestGolden replays the transcripts in testdata/golden and compares every byte.
// A transcript is a list of commands, each with what it printed:
//
//	stator serve   starts the server; only first, and optional. Flags are those
//	               of the command; settings without a flag go by their key in
//	               the file, and --key NAME[:trusted][:admin][:tenant=T] is the
//	               API key NAME.
//	curl           sends a request. A trailing & lets it run on, | grep -E RE
//	               shows the matching lines of the body.
//	wait           prints the answers to the requests that ran on.
//	upstream       prints the request that reached an engine last.
//	engine FAULT   makes the engines misbehave; see goldenFaults.
//	kill N         ends engine N.
//	drain          starts to drain the server.
//	sleep TIME     lets time pass.
//
// Time is virtual: the server starts at 2000-01-01 and an answer takes exactly
// as long as the simulator says. What remains to be made equal is the ids that
// the server draws.
func TestGolden(t *testing.T) {
	for _, file := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = replay(t, string(want), nil) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s (-want +got; -update rewrites it)\n%s", file, diff)
			}
		})
	}
}

// TestGoldenTraced replays the transcripts with a trace, which no client and no
// engine may notice.
func TestGoldenTraced(t *testing.T) {
	for _, file := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				got := replay(t, string(want), new(rowLog))
				if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("%s (-without +with a trace)\n%s", file, diff)
				}
			})
		})
	}
}

// TestGoldenCodes holds the transcripts against the table of errors: each
// condition that a client can be told about is shown by one.
func TestGoldenCodes(t *testing.T) {
	elsewhere := map[string]string{
		string(openai.CodeClientClosed): "the client that it would be told to has gone",
		string(openai.CodeInternal):     "only a bug brings it about",
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../openai/error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
		}
		return true
	})
	if len(codes) < 20 {
		t.Fatalf("found only %d codes: %v", len(codes), codes)
	}
	all := goldenText(t)
	for _, code := range codes {
		shown := strings.Contains(all, `"code":"`+code+`"`)
		_, excused := elsewhere[code]
		switch {
		case !shown && !excused:
			t.Errorf("no transcript shows the error %q", code)
		case shown && excused:
			t.Errorf("a transcript shows the error %q, so it needs no excuse", code)
		}
	}
}

// TestGoldenRoutes does the same for the routes.
func TestGoldenRoutes(t *testing.T) {
	all := goldenText(t)
	s := New(Config{Router: router.New(router.Config{})})
	for path := range s.routes {
		if !regexp.MustCompile(`(?m)^\$ curl .*localhost:8000` + regexp.QuoteMeta(path) + `\b`).MatchString(all) {
			t.Errorf("no transcript asks for %s", path)
		}
	}
}

func goldenFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	return files
}

func goldenText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range goldenFiles(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// step is one command of a transcript.
type step struct {
	note    string // comment lines before it
	command string
}

// parseTranscript drops what the commands printed.
func parseTranscript(text string) (steps []step) {
	var note string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case ok:
			for !complete(command) && i+1 < len(lines) {
				i++
				command += "\n" + lines[i]
			}
			steps = append(steps, step{note, command})
			note = ""
		case strings.HasPrefix(line, "#"):
			note += line + "\n"
		default:
			note = ""
		}
	}
	return steps
}

// complete reports whether a command ends here: outside quotes and without a
// backslash.
func complete(command string) bool {
	return strings.Count(command, "'")%2 == 0 && !strings.HasSuffix(command, `\`)
}

// words splits a command as a shell does. Single quotes are the only quotes.
func words(command string) (out []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			out[len(out)-1] += part
			continue
		}
		part = strings.ReplaceAll(part, "\\\n", " ")
		out = append(out, strings.Fields(part)...)
		if part == "" || strings.ContainsAny(part[len(part)-1:], " \n") {
			out = append(out, "") // what is quoted next is a word of its own
		}
	}
	return slices.DeleteFunc(out, func(w string) bool { return w == "" })
}

// replay runs a transcript's commands and returns the transcript anew. Requests
// leave their rows in rows, unless it is nil.
func replay(t *testing.T, text string, rows RowWriter) string {
	ts := &transcript{t: t, engine: new(goldenEngine), rows: rows}
	var out strings.Builder
	for i, st := range parseTranscript(text) {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s$ %s\n", st.note, st.command)
		if printed := strings.TrimRight(ts.run(words(st.command)), "\n"); printed != "" {
			out.WriteString(drawnID.ReplaceAllStringFunc(printed, maskID) + "\n")
		}
	}
	return out.String()
}

// drawnID matches a UUID. Transcripts that care about one bring their own, made
// of equal digits; any other was drawn by the server.
var drawnID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

func maskID(id string) string {
	if strings.HasPrefix(id, strings.Repeat(id[:1], 8)) {
		return id
	}
	return "UUID"
}

// transcript is a replay under way.
type transcript struct {
	t      *testing.T
	rig    *rig
	engine *goldenEngine
	rows   RowWriter
	jobs   []chan string
}

func (ts *transcript) run(args []string) string {
	ts.t.Helper()
	if args[0] == "stator" && args[1] == "serve" {
		if ts.rig != nil {
			ts.t.Fatal("the server runs already")
		}
		ts.rig = ts.serve(args[2:])
		return ""
	}
	if ts.rig == nil {
		ts.rig = ts.serve(nil)
	}
	switch args[0] {
	case "curl":
		return ts.curl(args[1:])
	case "wait":
		var all string
		for _, job := range ts.jobs {
			all += <-job
		}
		ts.jobs = nil
		return all
	case "upstream":
		return ts.engine.received()
	case "engine":
		if goldenFaults[args[1]] == nil {
			ts.t.Fatalf("no fault %q", args[1])
		}
		ts.engine.misbehave(args[1])
	case "kill":
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > len(ts.rig.engines) {
			ts.t.Fatalf("kill %s: no such engine", args[1])
		}
		ts.rig.engines[n-1].kill()
	case "drain":
		go ts.rig.Drain(ts.t.Context())
	case "sleep":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			ts.t.Fatal(err)
		}
		time.Sleep(d)
	default:
		ts.t.Fatalf("unknown command %q", args[0])
	}
	synctest.Wait()
	return ""
}

// serve starts the server.
func (ts *transcript) serve(args []string) *rig {
	cfg := serveFlags(ts.t, ts.engine, args)
	cfg.front.Trace, cfg.front.TraceText = ts.rows, true
	return newRig(ts.t, cfg)
}

// serveFlags reads the flags of stator serve.
func serveFlags(t *testing.T, e *goldenEngine, args []string) rigConfig {
	set := metrics.New(metrics.Options{})
	cfg := rigConfig{fault: e.serve, router: router.Config{Seed: 1, Metrics: set},
		front: Config{Metrics: set, Engines: someEngines, Registry: new(fakeRegistry)}}
	fs := flag.NewFlagSet("stator serve", flag.ContinueOnError)
	fs.IntVar(&cfg.engines, "sim", 1, "")
	fs.StringVar(&cfg.sim.Model, "sim-model", "", "")
	fs.DurationVar(&cfg.sim.TTFT, "sim-ttft", 0, "")
	fs.DurationVar(&cfg.sim.ITL, "sim-itl", 0, "")
	fs.IntVar(&cfg.sim.ContextLength, "sim.context_length", 0, "")
	fs.IntVar(&cfg.sim.Ranks, "sim.ranks", 0, "")
	fs.StringVar((*string)(&cfg.router.Mode), "router-mode", "", "")
	fs.Func("active-prefill-tokens-threshold", "", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		cfg.router.Thresholds.PrefillTokens = &n
		return err
	})
	fs.IntVar(&cfg.router.Decisions, "router.decisions", 0, "")
	var class sched.Class
	fs.Func("router.queue.threshold", "", func(s string) error {
		n, err := strconv.ParseFloat(s, 64)
		class = sched.Class{Name: "default", Quantum: 1, BusyFrac: &n}
		cfg.router.Queue = new(router.QueueConfig)
		return err
	})
	var maxWait time.Duration
	fs.DurationVar(&maxWait, "router.queue.max_wait", 0, "")
	fs.Func("request_queue_limit_per_worker", "", func(s string) error {
		n, err := strconv.Atoi(s)
		class.MaxRequests = &n
		return err
	})
	fs.IntVar(&cfg.front.OverloadStatus, "router.overload_status", 0, "")
	fs.BoolVar(&cfg.front.Strict, "strict", false, "")
	fs.Func("admin-listen", "", func(string) error {
		cfg.front.SplitAdmin = true
		return nil
	})
	fs.BoolVar(&cfg.front.IgnoreNvExt, "nvext.disabled", false, "")
	fs.BoolVar(&cfg.front.ForwardNvExt, "nvext.forward", false, "")
	fs.BoolVar(&cfg.front.NoUsage, "no-usage", false, "")
	fs.Int64Var(&cfg.front.Limits.Body, "limits.body_bytes", 0, "")
	fs.Int64Var(&cfg.front.Limits.Budget, "limits.body_budget_bytes", 0, "")
	fs.IntVar(&cfg.front.Limits.Inflight, "limits.max_inflight", 0, "")
	fs.Func("error-format", "", func(s string) error {
		if s != "dynamo" {
			return errors.New("expected dynamo")
		}
		cfg.front.ErrorFormat = openai.FormatDynamo
		return nil
	})
	fs.Func("key", "", func(s string) error {
		name, rest, _ := strings.Cut(s, ":")
		k := Key{Name: name, Hash: HashKey(name)}
		for right := range strings.SplitSeq(rest, ":") {
			tenant, isTenant := strings.CutPrefix(right, "tenant=")
			switch {
			case right == "trusted":
				k.Trusted = true
			case right == "admin":
				k.Admin = true
			case isTenant:
				k.Tenant = tenant
			}
		}
		cfg.front.Keys = append(cfg.front.Keys, k)
		return nil
	})
	if err := fs.Parse(args); err != nil || fs.NArg() > 0 {
		t.Fatalf("stator serve: %v %q", err, fs.Args())
	}
	if q := cfg.router.Queue; q != nil {
		q.Classes, q.MaxWait = []sched.Class{class}, maxWait
	}
	return cfg
}

// curl sends a request as the program of that name does.
func (ts *transcript) curl(args []string) string {
	ts.t.Helper()
	c := parseCurl(ts.t, args)
	if !c.background {
		return c.fetch(ts.t, ts.rig.client)
	}
	job := make(chan string, 1)
	go func() { job <- c.fetch(ts.t, ts.rig.client) }()
	ts.jobs = append(ts.jobs, job)
	synctest.Wait()
	return ""
}

// curlCall is a call of curl.
type curlCall struct {
	req        *http.Request
	include    bool // show status and headers
	discard    bool // do not show the body
	background bool
	grep       *regexp.Regexp // show these lines only
}

func parseCurl(t *testing.T, args []string) *curlCall {
	t.Helper()
	c := &curlCall{req: &http.Request{Header: http.Header{"Accept": {"*/*"}}}}
	req, implied := c.req, http.MethodGet
	for i := 0; i < len(args); i++ {
		next := func() string { i++; return args[i] }
		switch arg := args[i]; arg {
		case "-i":
			c.include = true
		case "-I":
			c.include = true
			implied = http.MethodHead
		case "-X":
			req.Method = next()
		case "-H":
			goldenHeader(req.Header, next())
		case "--json", "-d":
			implied = http.MethodPost
			req.Body, req.ContentLength = goldenBody(next())
			switch {
			case arg == "--json":
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json")
			case req.Header["Content-Type"] == nil:
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		case "-o":
			c.discard = next() == "/dev/null"
		case "&":
			c.background = true
		case "|":
			if next() != "grep" || next() != "-E" {
				t.Fatalf("curl: expected grep -E after |")
			}
			c.grep = regexp.MustCompile(next())
		default:
			u, err := url.Parse("http://" + arg)
			if err != nil || u.Host != "localhost:8000" {
				t.Fatalf("curl: %s: expected localhost:8000/PATH (%v)", arg, err)
			}
			req.URL = u
		}
	}
	if req.Method == "" {
		req.Method = implied
	}
	if req.Header.Get("Transfer-Encoding") == "chunked" {
		req.Header.Del("Transfer-Encoding")
		req.ContentLength = -1
	}
	return c
}

// fetch sends the request and returns what curl prints.
func (c *curlCall) fetch(t *testing.T, client *http.Client) string {
	resp, err := client.Do(c.req.WithContext(t.Context()))
	if c.req.Body != nil {
		c.req.Body.Close() // also when not all of it was wanted
	}
	if err != nil {
		return "curl: " + err.Error() + "\n"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		body = append(body, "\ncurl: "+err.Error()...)
	}
	if isEventStream(resp.Header) && err == nil && !strings.HasSuffix(string(body), "\n\n") {
		t.Errorf("a stream ends within an event: %q", body)
	}
	var out strings.Builder
	if c.include {
		fmt.Fprintf(&out, "%s %s\n", resp.Proto, resp.Status)
		writeHeader(&out, resp.Header)
		out.WriteByte('\n')
	}
	switch {
	case c.discard:
	case c.grep != nil:
		for line := range strings.Lines(string(body)) {
			if c.grep.MatchString(line) {
				out.WriteString(line)
			}
		}
	default:
		out.Write(body)
		out.WriteByte('\n')
	}
	return out.String()
}

// writeHeader writes the headers but for those that go without saying.
func writeHeader(out *strings.Builder, h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(out, "%s: %s\n", name, strings.Join(h[name], ", "))
		}
	}
}

// goldenHeader adds a header line, or those of a file.
func goldenHeader(h http.Header, line string) {
	if line == "@65-meta-headers.txt" {
		for i := range 65 {
			h.Add(fmt.Sprintf("X-Dynamo-Meta-Key-%d", i), "value")
		}
		return
	}
	name, value, _ := strings.Cut(line, ":")
	if value = strings.TrimSpace(value); value == "" {
		h.Del(name)
		return
	}
	h.Set(name, value)
}

// goldenBody returns a body as given, or that of a file.
func goldenBody(arg string) (io.ReadCloser, int64) {
	switch arg {
	case "@nested-100000-deep.json":
		arg = `{"model":"stator-sim","messages":` + strings.Repeat("[", 100_000)
	case "@empty.json":
		arg = ""
	case "@latin-1.json":
		arg = "{\"model\":\"stator-sim\",\"messages\":[{\"role\":\"user\",\"content\":\"caf\xe9\"}]}"
	case "@stalls-after-10-bytes.json":
		r, w := io.Pipe()
		go io.WriteString(w, `{"model": `)
		return r, 100
	}
	return io.NopCloser(strings.NewReader(arg)), int64(len(arg))
}

// goldenEngine stands in front of the simulated engines: it notes what they are
// sent, and fails on demand.
type goldenEngine struct {
	mu    sync.Mutex
	fault string
	last  string
}

func (e *goldenEngine) misbehave(fault string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fault = fault
}

func (e *goldenEngine) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func (e *goldenEngine) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var note strings.Builder
	fmt.Fprintf(&note, "%s %s\n", r.Method, r.URL)
	writeHeader(&note, r.Header)
	fmt.Fprintf(&note, "\n%s\n", body)
	e.mu.Lock()
	e.last = note.String()
	fault := goldenFaults[e.fault]
	e.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	next.ServeHTTP(w, r)
}

// goldenFaults are the ways in which an engine can misbehave.
var goldenFaults = map[string]http.HandlerFunc{
	"knows-all-routes": func(w http.ResponseWriter, r *http.Request) {
		goldenAnswer(w, 200, "application/json", `{"route":"`+r.URL.Path+`"}`)
	},
	"streams-events": func(w http.ResponseWriter, r *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", "event: response.created\ndata: {\"type\":\"response.created\"}\n\n")
	},
	"answers-503": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 503, "application/json", `{"error":{"message":"the engine is warming up","type":"ServiceUnavailableError","param":null,"code":503}}`)
	},
	"answers-502-in-html": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 502, "text/html", "<h1>Bad Gateway</h1>")
	},
	"answers-500": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 500, "application/json", `{"object":"error","message":"CUDA out of memory","type":"InternalServerError","code":500}`)
	},
	"answers-503-flat": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		goldenAnswer(w, 503, "application/json", `{"object":"error","message":"The request queue is full.","type":"ServiceUnavailableError","code":503}`)
	},
	"answers-400-flat": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 400, "application/json", `{"object":"error","message":"The input is longer than the context.","type":"BadRequestError","param":null,"code":400}`)
	},
	"answers-429": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 429, "application/json", `{"error":{"message":"slow down","type":"RateLimitError","param":null,"code":429}}`)
	},
	"answers-no-json": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 200, "application/json", "hello")
	},
	"begins-with-error": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", `data: {"error":{"message":"the grammar does not compile","type":"BadRequestError","param":null,"code":400}}`+"\n\ndata: [DONE]\n\n")
	},
	"reports-error-midway": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", goldenChunk+`data: {"error":{"message":"CUDA out of memory","type":"InternalServerError","param":null,"code":500}}`+"\n\ndata: [DONE]\n\n")
	},
	"never-finishes": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", goldenChunk)
		io.WriteString(w, "data: [DONE]\n\n")
	},
	"breaks-off": func(w http.ResponseWriter, _ *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", goldenChunk)
		panic(http.ErrAbortHandler)
	},
	"never-answers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"falls-silent": func(w http.ResponseWriter, r *http.Request) {
		goldenAnswer(w, 200, "text/event-stream", goldenChunk)
		<-r.Context().Done()
	},
}

const goldenChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":946684800,"model":"stator-sim","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}` + "\n\n"

func goldenAnswer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	io.WriteString(w, body)
	http.NewResponseController(w).Flush()
}
